"""The measured claims of README.md, from `benchmarks/results/*.json`.

`python -m benchmarks.tables` writes them into the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Result = Mapping[str, Any]


def bullets(
  quickstart: Result,
  async_core: Result,
  decode: Result,
  learner_step: Result,
  kill_resume: Result,
) -> str:
  """Returns a line of Markdown for each claim, with the command that measures it."""
  made = (
    (learning(quickstart), 'benchmarks.quickstart --seeds 3'),
    (waiting(async_core), 'benchmarks.async_core'),
    (
      decoding(decode),
      'benchmarks.decode --against transformers,vllm,tunix',
    ),
    (learner(learner_step), 'benchmarks.learner_step'),
    (kills(kill_resume), 'benchmarks.kill_resume'),
  )
  return '\n'.join(
    f'- {text} [`python -m {command}`]'
    f'({command.split()[0].replace(".", "/")}.py)'
    for text, command in made
  )


def learning(quickstart: Result) -> str:
  """Rewards of a step on held-out tasks, before and after RL, and of the control.

  The intervals of the result resample single steps, as if those of a trajectory were
  independent.
  """
  seeds = quickstart['seeds'].values()
  sft, rl = (_rewards(seeds, policy) for policy in ('sft', 'rl'))
  controls = quickstart['control'].values()
  before, after = (_rewards(controls, policy) for policy in ('sft', 'rl'))
  falls = all(new < old for old, new in zip(before, after, strict=True))
  better = sum(
    _reward(one, 'rl')['low'] > _reward(one, 'sft')['high'] for one in seeds
  )
  return (
    f'**It learns, and the control does not.** On held-out tasks {better} of '
    f'{len(seeds)} seeds improve beyond their intervals (of single steps, narrower '
    f'than 95 %), from {_span(sft)} to {_span(rl)} of reward a step; the control, with '
    f'shuffled rewards, {"falls" if falls else "goes"} from {_span(before)} to '
    f'{_span(after)}.'
  )


def waiting(async_core: Result) -> str:
  """Work and updates of rollouts that are carried over and kept at any age.

  Updates an hour stand beside those of a trainer that waits for every rollout, for
  each number of turns: on worker processes and real time, with a simulated policy and
  without faults.
  """
  plain = [
    row
    for row in async_core['real']
    if row['durations'] == 'lognormal' and not row['faults']
  ]
  kept = sorted(
    (
      row
      for row in plain
      if row['rest'] == 'carry_over' and row['on_stale'] == 'keep'
    ),
    key=lambda row: -row['turns'],
  )
  same = ('workers', 'turns', 'bound')
  gains = []
  for row in kept:
    waited = next(
      other
      for other in plain
      if other['rest'] == 'wait' and all(other[k] == row[k] for k in same)
    )
    gain = row['updates_per_hour'] / waited['updates_per_hour']
    gains.append(f'{gain:.1f} ({_turns(row["turns"])})')
  ages = [
    f'{row["staleness_max"]:.0f} ({_turns(row["turns"])})' for row in kept
  ]
  possible = _span((100 * row['of_ideal'] for row in kept), 0)
  busy = _span((100 * row['worker_use'] for row in kept), 1)
  return (
    '**Workers do not wait for the slowest execution.** With log-normal durations '
    f'{kept[0]["workers"]} of them are busy {busy} % of the time and make {" to ".join(gains)} times the updates an hour '
    f'of synchronous training, {possible} % of what is possible. The price is age: '
    f'stale samples are kept, the oldest by {" and ".join(ages)} updates (the '
    'scheduler alone, with a simulated policy).'
  )


def decoding(decode: Result) -> str:
  """Tokens a second of the native engine over those of other samplers."""
  rate = {
    (row['sampler'], row['model'], row['n']): row['tokens_per_s']
    for row in decode['rows']
  }
  times: dict[str, list[float]] = {}
  for (sampler, *shape), tokens in rate.items():
    times.setdefault(sampler, []).append(rate['native', *shape] / tokens)
  return (
    f'**Decoding on two CPU cores** is {_span(times["transformers"], 1)} times as '
    f'fast as `transformers`, {_span(times["tunix"], 1)} times as Tunix and '
    f'{_span(times["vllm"], 1)} times as vLLM (3.5M and 20M weights).'
  )


def learner(learner_step: Result) -> str:
  """Speed and memory of a training step beside `transformers`, on one GPU."""
  arms = {row['arm']: row for row in learner_step['rows']}
  pairs = [
    (row, arms[f'{arm}-torch'])
    for arm, row in arms.items()
    if f'{arm}-torch' in arms
  ]
  speed = [own['tokens_per_s'] / other['tokens_per_s'] for own, other in pairs]
  memory = [own['peak_gb'] / other['peak_gb'] for own, other in pairs]
  device = learner_step['machine']['accelerator']
  return (
    f'**The learner on one {device}** makes {_span(speed, 1)} times the tokens a '
    f'second of `transformers` in {_span(memory)} of its memory (0.5B and 1.5B '
    'weights).'
  )


def kills(kill_resume: Result) -> str:
  """What a run that was killed again and again lost and repeated."""
  sync, carried = kill_resume['sync'], kill_resume['async']
  equal = (
    ', and the synchronous run ends equal to the last digit'
    if sync['equal_to_the_last_digit']
    else ''
  )
  again = sync['executed_again'] + carried['executed_again']
  once = all(run['trained_once'] for run in (sync, carried))
  return (
    f'**Killed {kill_resume["kills"]} times with SIGKILL**, a run of '
    f'{kill_resume["updates"]} updates trains '
    f'{"each sample once" if once else "some samples twice"} and repeats '
    f'{again or "no"} finished executions{equal}.'
  )


def seeds_table(quickstart: Result) -> str:
  """Returns the rewards of a step by seed, with their intervals, in Markdown."""
  lines = [
    '| seed | held-in: SFT | RL | control | held-out: SFT | RL | control |',
    '|---|---|---|---|---|---|---|',
  ]
  for seed, run in quickstart['seeds'].items():
    cells = []
    for split in ('heldin', 'heldout'):
      sft, rl = (_reward(run, policy, split) for policy in ('sft', 'rl'))
      control = _reward(quickstart['control'][seed], 'rl', split)
      cells += [_cell(sft), _cell(rl, '**'), f'{control["mean"]:.2f}']
    lines.append(f'| {seed} | {" | ".join(cells)} |')
  return '\n'.join(lines)


def _turns(number: int) -> str:
  return 'one turn' if number == 1 else f'{number} turns'


def _cell(reward: Result, mark: str = '') -> str:
  return (
    f'{mark}{reward["mean"]:.2f} [{reward["low"]:.2f}, '
    f'{reward["high"]:.2f}]{mark}'
  )


def _reward(run: Result, policy: str, split: str = 'heldout') -> Result:
  return run['policies'][policy][split]['mean_reward']


def _rewards(runs: Iterable[Result], policy: str) -> list[float]:
  return [_reward(run, policy)['mean'] for run in runs]


def _span(values: Iterable[float], digits: int = 2) -> str:
  """'LOWEST-HIGHEST', or one number where they are the same."""
  found = sorted(values)
  ends = [f'{found[0]:.{digits}f}', f'{found[-1]:.{digits}f}']
  return '-'.join(dict.fromkeys(ends))
