"""Writes a run's results for people: summary.json and report.html."""

from __future__ import annotations

import pathlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxagent.analysis import behaviour, evaluation, intervals, needed
from jaxagent.analysis.summary import POLICIES, Summary
from jaxagent.config import settings
from jaxagent.envs.specs import label_sources
from jaxagent.recipes import agent_figures, scoring, whole_test
from jaxagent.recipes.evaluation import present
from jaxagent.records import Evaluated, TrainedTurn
from jaxagent.report import Contents, write_report
from jaxagent.rollout import rollout_log
from jaxagent.runtime import executions, kept
from jaxagent.types import Record

if TYPE_CHECKING:
  from jaxagent.recipes.starts import Start
  from jaxagent.runtime.context import RunContext


def read_traces(directory: pathlib.Path) -> list[TrainedTurn]:
  """Reads every trained turn of the run, in the order it was trained.

  A damaged file is reported and renamed `*.damaged`; its whole records stay. Raises
  UserError where one holds records of a kind or version that is not known.
  """
  turns: list[TrainedTurn] = []
  for path in sorted(directory.glob('update_*.jsonl')):
    turns += kept.mend_lines(path, TrainedTurn.from_json)
  return turns


def write(
  context: RunContext,
  starts: Mapping[str, Start],
  evaluated: Mapping[str, Sequence[Evaluated]],
  traces: Sequence[TrainedTurn],
  extra: Mapping[str, Any] = {},
  how: Mapping[str, Any] = {},
) -> None:
  """Writes both files into the work directory and prints where they are.

  Trajectories that are missing count nowhere but in the summary's `extra`.

  extra: more for it. how: what of the evaluation is not as in `config.eval`.
  """
  missing = {
    label: sum(r.missing for r in records)
    for label, records in evaluated.items()
  }
  evaluated = {label: present(r) for label, r in evaluated.items()}
  summary = _summary(context, starts, evaluated, traces, missing, how)
  for name, value in extra.items():
    summary.set_extra(name, value)
  complete = set(evaluated) == {'sft', 'rl'}
  path = summary.write(context.work / 'summary.json', complete=complete)
  report = context.work / 'report.html'
  data = summary.build(complete=complete)
  write_report(
    report,
    Contents(
      summary=data,
      metrics_jsonl=context.work / 'logs' / 'metrics.jsonl',
      trajectories=_shown(evaluated),
      durations=[t.record.exec_s for t in traces if t.record.ran],
      tasks=_task_rows(context, starts, evaluated),
    ),
  )
  _print(context, data, path, report)


def _summary(
  context: RunContext,
  starts: Mapping[str, Start],
  evaluated,
  traces,
  missing,
  how: Mapping[str, Any] = {},
) -> Summary:
  config = context.config
  summary = Summary(
    config_sha=settings.config_sha(config),
    isolation_tier=context.pool.tier,
    stand_ins=context.stand_ins,
  )
  if context.standin_data:
    summary.set_extra('standin_data', context.standin_data)
  k = config.eval.k
  if any(missing.values()):
    k = _largest_k(k, evaluated)
    summary.set_extra('missing_trajectories', missing)
  _set_sections(context, summary, starts, evaluated, k)
  for task in context.heldin + context.heldout:
    reason = label_sources.untrusted(context.spec(task), context.pool.tier)
    if reason:
      summary.set_untrusted(task, reason)
  as_configured = dict(
    start='starter',
    seed=config.seed,
    temperature=config.rollout.temperature,
    k=k,
    trajectories_per_task=config.eval.trajectories_per_task,
    max_steps=config.eval.max_steps,
  )
  summary.set_evaluation(**{**as_configured, **how})
  for stage, seconds in context.wall_s.items():
    summary.set_wall(stage, seconds)
  log = context.work / executions.LOG
  summary.add_outcomes(executions.count(log))
  if looked_up := executions.count_recorded(log):
    summary.set_extra('recorded_executions', looked_up)
  summary.set_extra(
    'rl_seconds', rollout_log.seconds_by_task(context.work / rollout_log.LOG)
  )
  if config.rl.validate_every:
    from jaxagent.training import device, validation

    summary.set_extra(
      'validation',
      validation.summary(context.work, device.checkpoints_of(context.work)),
    )
  if whole := whole_test.figures(context, starts, evaluated):
    summary.set_extra('whole_test', whole)
  summary.set_extra(
    'mlagentbench', agent_figures.figures(context, starts, evaluated)
  )
  for name, part, steps in behaviour_parts(evaluated, traces):
    summary.set_behaviour(name, part, behaviour.figures(steps))
  return summary


def _set_sections(
  context: RunContext,
  summary: Summary,
  starts: Mapping[str, Start],
  evaluated: Mapping[str, Sequence[Evaluated]],
  k: int,
) -> None:
  """Adds the intervals of each policy on each split."""
  scales = scoring.scales(context, starts)
  for split in ('heldin', 'heldout'):
    for policy in ('starter', *evaluated):
      if policy == 'starter':
        runs = scoring.starter_runs(context, starts, split)
      else:
        runs = scoring.runs_of(evaluated[policy], split)
      summary.set_section(
        policy,
        split,
        evaluation.section(
          runs,
          scales,
          k=k,
          deterministic=policy == 'starter',
        ),
      )


def _largest_k(k: int, evaluated: Mapping) -> int:
  """Returns the k of best@k: smaller where missing trajectories leave too few.

  Prints that it is smaller.
  """
  counts = [Counter(r.task for r in records) for records in evaluated.values()]
  fewest = min((n for c in counts for n in c.values()), default=k)
  if fewest < k:
    print(
      f'best@k with k={fewest}, not {k}: a task has only {fewest} trajectories '
      'that are not missing.'
    )
  return min(k, fewest)


def behaviour_parts(
  evaluated: Mapping, traces
) -> Iterator[tuple[str, str, list[Record]]]:
  """Yields (policy, part, records) for each part of the summary's behaviour."""
  first, last = behaviour.quarters(traces)
  yield 'train', 'first_quarter', [turn.record for turn in first]
  yield 'train', 'last_quarter', [turn.record for turn in last]
  for policy, records in evaluated.items():
    for split in ('heldin', 'heldout'):
      own = [r for r in records if r.split == split]
      yield policy, split, [s.record for r in own for s in r.steps]


def _task_rows(
  context: RunContext,
  starts: Mapping[str, Start],
  evaluated: Mapping[str, Sequence[Evaluated]],
) -> list[dict]:
  scales = scoring.scales(context, starts)
  rows = []
  for task in context.heldin + context.heldout:
    scale = scales[task]
    row = {
      'task': task,
      'split': 'heldin' if task in context.heldin else 'heldout',
      'modality': context.spec(task).modality,
      'metric': context.spec(task).metric,
      'higher_is_better': scale.higher_is_better,
      'm_init': scale.m_init,
      'm_best': scale.m_best,
      'starter': scale.m_init,
    }
    for label, records in evaluated.items():
      scores = [
        r.score if r.score is not None else scale.m_init
        for r in records
        if r.task == task
      ]
      row[label] = intervals.interval(
        {task: scores}, intervals.of_means
      ) | needed.needs([len(scores)])
      if scores:
        row[f'{label}_best'] = evaluation.best_at_k(
          scores, len(scores), scale.higher_is_better
        )
    rows.append(row)
  return rows


def _shown(
  evaluated: Mapping[str, Sequence[Evaluated]], per_task: int = 3
) -> list[tuple[str, Evaluated]]:
  """Returns a few trajectories of each policy and task, for the viewer."""
  shown = []
  for label, records in evaluated.items():
    seen: dict[str, int] = {}
    for record in records:
      seen[record.task] = seen.get(record.task, 0) + 1
      if seen[record.task] <= per_task:
        shown.append((label, record))
  return shown


def _print(
  context: RunContext,
  data: Mapping[str, Any],
  summary: pathlib.Path,
  report: pathlib.Path,
) -> None:
  print(f'\n{"":8} {"":8} {"mean reward [95 %]":>32} {"relative gain":>32}')
  few = False
  for split in ('heldin', 'heldout'):
    for policy in (p for p in POLICIES if p in data):
      part = data[policy][split]
      print(
        f'{split:8} {policy:8} {_text(part["mean_reward"]):>32} '
        f'{_text(part["relative_gain"]):>32}'
      )
      few |= any('needs' in part[n] for n in ('mean_reward', 'relative_gain'))
  if few:
    print(
      'needs N: too few trajectories of a task; from N on such intervals hold the true '
      'value in 93 % of simulated cases (docs/summary.md)'
    )
  if found := data['extra'].get('validation'):
    print(f'\npolicy rl: {_validated(found)}')
  if whole := list(whole_test.lines(data['extra'].get('whole_test', {}))):
    print('\nwhole hidden test, as the source scores it:', *whole, sep='\n  ')
  print(f'\nsummary      {summary}')
  print(f'TensorBoard  tensorboard --logdir {context.work / "logs"}')
  print(f'report       {report}')


def _validated(found: Mapping[str, Any]) -> str:
  """Returns which update of RL was evaluated, with the validations' rewards."""
  text = f'update {found["evaluated"]}'
  for name in ('best', 'last'):
    if (one := found[name]) and one['reward'] is not None:
      reward = f'validation reward {one["reward"]:.3f}'
      text += f'; {name}: update {one["update"]}, {reward}'
  return text


def _text(interval: Mapping) -> str:
  if not interval['n']:
    return '-'
  text = '{mean:.3f} [{low:.3f}, {high:.3f}]'.format(**interval)
  return ', '.join(filter(None, [text, needed.text(interval)]))
