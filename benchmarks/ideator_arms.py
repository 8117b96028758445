"""What scripted Ideators are worth to scripted Implementers: no policy is trained.

  python -m benchmarks.ideator_arms [--runs 15] [--seeds 2] [--ideas 570] [--json]

Paper 001's tables 1 and 2 and figure 4 in miniature, on the bundled tasks with real
executions. A run's last valid submission counts, by its private rows: 0 is the
starter, 100 the best recorded solution, and a score below the starter is 0. Beside the
teacher and blind ideas there is a table of what worked, learned on ideas that were
carried out on held-in tasks: about what reinforcement learning can win there.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import json
import pathlib
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import machine
from jaxagent import types
from jaxagent.analysis.at_three import avg_at_three, best_at_three
from jaxagent.envs.execution import ScriptRunner
from jaxagent.envs.grading import Grader
from jaxagent.envs.implementer_env import ImplementerEnvironment
from jaxagent.envs.implementer_state import PROGRAMS, ImplementerState
from jaxagent.envs.model_line import step_names
from jaxagent.envs.specs import label_sources
from jaxagent.envs.tasks import PreparedTask, list_tasks, prepare_task
from jaxagent.interactions import POLICY, Execute, RolloutState
from jaxagent.recipes.ideator.interaction import (
  IDEATOR,
  IMPLEMENTER,
  Adviser,
  HelpState,
  Ideas,
  Run,
  Runs,
  execute,
)
from jaxagent.recipes.ideator.parser import Idea, write_idea
from jaxagent.recipes.ideator.prompt import NULL, VAGUE
from jaxagent.recipes.ideator.record import IdeaRecord
from jaxagent.sandbox import SandboxPool
from jaxagent.stand_ins import ideator, implementer, moves
from jaxagent.stand_ins.ideator import Items, family_of

NAME = 'ideator_arms'
TASKS = pathlib.Path(__file__).parents[1] / 'tasks'
MAX_STEPS, MAX_CALLS, TIME_LIMIT_S = 16, 2, 3600.0
_IDS = np.ones(1, np.int32)  # a prompt that no policy reads

Draw = Callable[[ImplementerState, types.TaskSpec, random.Random], Items]


@dataclasses.dataclass(frozen=True)
class Arm:
  """A pair of Implementer and Ideator.

  adviser: 'none', 'null', 'vague', 'teacher', 'blind' or 'table'.
  """

  name: str
  habits: str
  adviser: str


ARMS = (
  *(
    Arm(name, 'scripted', name)
    for name in ('none', 'null', 'vague', 'teacher', 'blind', 'table')
  ),
  *(
    Arm(f'second:{name}', 'scripted_relative', name)
    for name in ('none', 'teacher', 'table')
  ),
)


@dataclasses.dataclass(frozen=True)
class Ended:
  """Result of a run.

  score: normalised, of the last valid submission; None where none is valid.
  best_by_valid: likewise, of the best submission by the validation rows.
  by_step: that of the last valid submission after each message.
  ideas: (family, improved) of each that was carried out. help_at: messages that ask.
  """

  task: str
  index: int
  seed: int
  score: float | None
  best_by_valid: float | None
  by_step: tuple[float | None, ...]
  ideas: tuple[tuple[str, bool], ...]
  help_at: tuple[int, ...]
  steps: int


class Bench:
  """Tasks, sandbox and grader of a measurement; closed by `opened`."""

  def __init__(
    self,
    prepared: Mapping[str, PreparedTask],
    runner: ScriptRunner,
    slots: int,
  ):
    self.prepared, self.runner = prepared, runner
    self.env = ImplementerEnvironment(runner)
    self.starts: dict[str, tuple[float, float]] = {}
    self._threads = concurrent.futures.ThreadPoolExecutor(2 * slots)
    self._names = itertools.count()
    self.executions = 0
    self._lock = threading.Lock()

  def spec(self, task: str) -> types.TaskSpec:
    return self.prepared[task].spec

  def tasks(self, split: str) -> list[str]:
    return [n for n, t in self.prepared.items() if t.spec.split == split]

  def side_by_side(self, jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    """Returns the results of jobs in their order; raises what one of them raises."""
    futures = [self._threads.submit(job) for job in jobs]
    return [future.result() for future in futures]

  def carry_out(self, action: Any) -> types.Executed:
    """Carries out an action, tried again after an error of the sandbox."""
    for _ in range(3):
      done = execute(
        self.env, action, f'arms-{next(self._names)}', private=True
      )
      with self._lock:
        self.executions += 1
      if not done.outcome.is_infrastructure:
        return done
    raise RuntimeError(f'three errors of the sandbox, the last: {done.message}')

  def measure_starts(self) -> None:
    """Scores of each starter, on (validation, private) rows."""

    def measured(task: str) -> tuple[float, float]:
      state = self.env.initial(task)
      script = implementer.ScriptedImplementer(
        dataclasses.replace(implementer.Habits(), slips=0.0)
      )
      text = script.message(state, self.spec(task), random.Random(0))
      progress = RolloutState(
        Runs(max_steps=1, time_limit_s=TIME_LIMIT_S, adviser=None),
        Run(task, state),
        roles=(IMPLEMENTER,),
      )
      progress.take(0, types.TextCompletion(text))
      (call,) = progress.open.values()
      assert isinstance(call, Execute)
      done = self.carry_out(call.request)
      return done.state['step']['score'], done.kept['private']

    names = list(self.prepared)
    jobs = [lambda name=name: measured(name) for name in names]
    self.starts = dict(zip(names, self.side_by_side(jobs)))

  def normalised(self, task: str, private: float | None) -> float | None:
    """max(0, 100 (s - starter) / (best recorded - starter)), without upper cut."""
    if private is None:
      return None
    start, best = self.starts[task][1], self.spec(task).m_best_private
    assert best is not None  # of every bundled task
    return max(0.0, 100 * (private - start) / (best - start))


@contextlib.contextmanager
def opened(slots: int, work: pathlib.Path, names: Sequence[str]):
  """Opens sandbox and grader for the bundled tasks of these names, or all."""
  specs = [
    s for s in list_tasks(TASKS, version=1) if not names or s.name in names
  ]
  prepared = {s.name: prepare_task(s, work / 'tasks') for s in specs}
  hidden = (work, TASKS, *label_sources.folders(specs))
  with (
    SandboxPool(slots, work_dir=work / 'sandbox', hidden=hidden) as pool,
    Grader(prepared) as grader,
  ):
    yield Bench(prepared, ScriptRunner(prepared, pool, grader), slots)


# Runs ---------------------------------------------------------------------------


def run_one(
  bench: Bench, arm: Arm, draws: Mapping[str, Draw], task: str, index: int, seed: int
) -> tuple[Ended, list[ImplementerState]]:  # fmt: skip
  """Runs one pair on a task; returns its result and the states that ask.

  Random numbers depend on seed, task, run and step: all arms have the same.
  """
  name, spec = f'{seed}/{task}/{index}', bench.spec(task)
  script = implementer.ScriptedImplementer(
    implementer.HABITS[arm.habits], max_steps=MAX_STEPS
  )
  initial = bench.env.initial(task, bench.starts[task][0])
  runs = Runs(
    max_steps=MAX_STEPS, time_limit_s=TIME_LIMIT_S, adviser=_adviser(arm)
  )
  progress = RolloutState(
    runs, Run(name, initial), roles=(IMPLEMENTER, IDEATOR)
  )
  asked, privates = [], {}
  by_step: list[float | None] = []
  while not progress.finished:
    ((number, call),) = progress.open.items()
    state = progress.state.state
    if isinstance(call, Execute):
      done = bench.carry_out(call.request)
      privates[len(state.steps)] = done.kept.get('private')
      progress.take(number, done)
    else:
      rng = random.Random(f'{call.role} {name} {len(state.steps)}')
      if call.role == IMPLEMENTER:
        text = script.message(state, spec, rng, call.prompt.calls_left)
      else:
        asked.append(state)
        text = write_idea(Idea(*draws[arm.adviser](state, spec, rng)))
      progress.take(number, types.TextCompletion(text))
    after = progress.state.state
    if len(after.steps) > len(by_step):
      by_step.append(_of(bench, task, after.last, privates))
  return _ended(bench, task, index, seed, after, privates, by_step), asked


def _adviser(arm: Arm) -> Adviser | None:
  sentence = {'null': NULL, 'vague': VAGUE}.get(arm.adviser)
  if sentence is not None:
    return Adviser(role='', sentence=sentence, max_calls=MAX_CALLS)
  return None if arm.adviser == 'none' else Adviser(max_calls=MAX_CALLS)


def _of(bench: Bench, task: str, scored, privates) -> float | None:
  if scored is None:
    return None
  return bench.normalised(task, privates.get(scored.step))


def _ended(
  bench: Bench, task: str, index: int, seed: int, state: ImplementerState,
  privates: Mapping[int, float | None], by_step: Sequence[float | None],
) -> Ended:  # fmt: skip
  return Ended(
    task,
    index,
    seed,
    _of(bench, task, state.last, privates),
    _of(bench, task, state.best, privates),
    tuple(by_step),
    tuple(_ideas_of(state, bench.spec(task))),
    tuple(n for n, s in enumerate(state.steps) if s.kind == 'seek_help'),
    len(state.steps),
  )


def _ideas_of(
  state: ImplementerState, spec: types.TaskSpec
) -> Iterator[tuple[str, bool]]:
  """Yields (family, improved) of the ideas that the next step carried out."""
  best: float | None = None
  action: str | None = None
  for step in state.steps:
    if step.kind in PROGRAMS:
      gained = step.score is not None and state.improves(step.score, best)
      if action is not None:
        yield family_of(action, spec.kind, spec.modality), gained
      best, action = step.score if gained else best, None
    elif step.kind == 'seek_help':
      action = implementer.action_of(step.observation)


# Ideas --------------------------------------------------------------------------


def try_ideas(
  bench: Bench, states: Sequence[ImplementerState], count: int, seed: int
) -> list[tuple[ImplementerState, IdeaRecord]]:
  """Carries out `count` ideas, half of the teacher's, half blind ones, each once."""
  ideators = (ideator.ScriptedIdeator(), ideator.BlindIdeator())
  script = implementer.ScriptedImplementer(max_steps=MAX_STEPS)
  interaction = Ideas(lambda item: _IDS, str)

  def tried(number: int) -> tuple[ImplementerState, IdeaRecord]:
    state = states[number % len(states)]
    spec = bench.spec(state.task)
    rng = random.Random(f'idea {seed} {number}')
    items = ideators[number % 2].items(state, spec, rng)
    progress = RolloutState(
      interaction,
      HelpState(str(number), '', state),
      roles=(POLICY, IMPLEMENTER),
    )
    (call,) = progress.take(0, write_idea(Idea(*items)))  # type: ignore[arg-type]
    text = script.message(call.prompt.state, spec, rng)  # type: ignore[union-attr]
    opened_calls = progress.take(1, types.TextCompletion(text))
    for call in opened_calls:
      progress.take(call.call, bench.carry_out(call.request))  # type: ignore[union-attr]
    return state, progress.state

  return bench.side_by_side(
    [functools.partial(tried, number) for number in range(count)]
  )


class Table:
  """What worked, by the task's side, its kind of data, the estimator and the move.

  A move's chance is its share of successes, drawn towards that of its family on the
  same side while few were seen.
  """

  def __init__(
    self,
    tried: Sequence[tuple[ImplementerState, IdeaRecord]],
    bench: Bench,
    *,
    weight: float = 2.0,
    among: int = 4,
  ):
    self._seen: dict[tuple, list[float]] = collections.defaultdict(
      lambda: [0.0, 0.0]
    )
    self._weight, self._among = weight, among
    for state, record in tried:
      spec = bench.spec(state.task)
      action = record.entries['ACTION']
      known = ideator.moves_said(spec.kind, spec.modality)
      move = known[action.rstrip('. ')]
      gained = float(record.earned() == 1.0)
      for key in _keys(spec, state, move.family, move.say()):
        self._seen[key][0] += 1
        self._seen[key][1] += gained

  def chance(
    self, spec: types.TaskSpec, state: ImplementerState, move: moves.Move
  ) -> float:
    """Returns how often the move is expected to improve the state's program."""
    chance = 0.35
    for key in _keys(spec, state, move.family, move.say()):
      n, gained = self._seen.get(key, (0.0, 0.0))
      chance = (gained + self._weight * chance) / (n + self._weight)
    return chance

  def items(
    self, state: ImplementerState, spec: types.TaskSpec, rng: random.Random
  ) -> Items:
    """Returns one of the best few that fit and were not tried in this run."""
    fits = ideator.fitting(state, spec)
    fits.sort(key=lambda m: (-self.chance(spec, state, m), m.say()))
    return ideator.said(rng.choice(fits[: self._among]), rng)


def _side(spec: types.TaskSpec) -> str:
  return 'classify' if spec.kind == 'classification' else 'regress'


def _keys(
  spec: types.TaskSpec, state: ImplementerState, family: str, move: str
) -> list[tuple]:
  """Keys of a move, from the widest to the narrowest."""
  side = _side(spec)
  names = step_names(ideator.code_of(state)) or ('',)
  return [
    (family,),
    (side, family),
    (side, spec.modality, family),
    (side, 'estimator', names[-1], family),
    (side, move),
  ]


# Figures ------------------------------------------------------------------------


def figures(bench: Bench, ended: Sequence[Ended]) -> dict[str, Any]:
  """Figures of an arm, by split: means over tasks and seeds."""
  found: dict[str, Any] = {}
  for split in ('heldin', 'heldout'):
    rows, raw = [], []
    for task in bench.tasks(split):
      for seed in sorted({e.seed for e in ended}):
        own = [e for e in ended if e.task == task and e.seed == seed]
        scores = [e.score for e in own]
        rows.append((avg_at_three(scores), best_at_three(scores)))
        raw += own
    ideas = [one for e in raw for one in e.ideas]
    found[split] = {
      'avg': float(np.mean([r[0] for r in rows])) if rows else None,
      'best': float(np.mean([r[1] for r in rows])) if rows else None,
      'improve': float(np.mean([g for _, g in ideas])) if ideas else None,
      'ideas': len(ideas),
      'calls': float(np.mean([len(e.help_at) for e in raw])) if raw else None,
      'steps': float(np.mean([e.steps for e in raw])) if raw else None,
    }
  return found


def by_family(tried: Sequence[tuple[str, bool]]) -> dict[str, dict[str, float]]:
  groups: dict[str, list[bool]] = collections.defaultdict(list)
  for family, gained in tried:
    groups[family or 'other'].append(gained)
  return {
    name: {'n': len(g), 'improve': float(np.mean(g))}
    for name, g in sorted(groups.items())
  }


def table(result: Mapping[str, Any]) -> str:
  """Returns the result as a table in Markdown."""

  def number(value: float | None, digits: int) -> str:
    return '' if value is None else f'{value:.{digits}f}'

  lines = [
    '| Ideator | held-in Avg, Best of 3 | held-out Avg, Best of 3 | ideas that '
    'improve, held-in, held-out | calls, steps a run |',
    '|---|---|---|---|---|',
  ]
  for name, both in result['arms'].items():
    inside, outside = both['heldin'], both['heldout']
    cells = [
      name,
      f'{number(inside["avg"], 0)}, {number(inside["best"], 0)}',
      f'{number(outside["avg"], 0)}, {number(outside["best"], 0)}',
      f'{number(inside["improve"], 2)}, {number(outside["improve"], 2)}',
      f'{number(inside["calls"], 1)}, {number(inside["steps"], 1)}',
    ]
    lines.append(f'| {" | ".join(cells)} |')
  families = ', '.join(
    f'{name} {one["improve"]:.2f} ({one["n"]})'
    for name, one in result['families'].items()
  )
  cost = f'{result["executions"]} executions in {result["wall_s"]:.0f} s'
  return '\n'.join([*lines, '', f'By family (n): {families}', cost])


def measure(args: argparse.Namespace, work: pathlib.Path) -> dict[str, Any]:
  """Runs all arms; returns the result."""
  began = time.monotonic()
  names = [n for n in args.tasks.split(',') if n]
  with opened(args.slots, work, names) as bench:
    bench.measure_starts()
    draws: dict[str, Draw] = {
      'teacher': ideator.ScriptedIdeator().items,
      'blind': ideator.BlindIdeator().items,
    }
    ended: dict[str, list[Ended]] = {}
    states: list[ImplementerState] = []
    tried: list[tuple[ImplementerState, IdeaRecord]] = []
    wanted = [
      a for a in ARMS if not args.arms or a.name in args.arms.split(',')
    ]
    for arm in sorted(wanted, key=lambda a: a.adviser == 'table'):
      if arm.adviser == 'table' and not tried:
        tried = try_ideas(bench, states, args.ideas, 0)
        draws['table'] = Table(tried, bench).items
        _tell(f'{len(tried)} ideas', began)
      jobs = [
        lambda arm=arm, task=task, index=index, seed=seed: run_one(
          bench, arm, draws, task, index, seed
        )
        for seed in range(args.seeds)
        for task in bench.prepared
        for index in range(args.runs)
      ]
      done = bench.side_by_side(jobs)
      ended[arm.name] = [one for one, _ in done]
      if arm.adviser in ('teacher', 'blind'):
        states += [
          s for _, asked in done for s in asked
          if bench.spec(s.task).split == 'heldin'
        ]  # fmt: skip
      _tell(f'{arm.name}: {len(done)} runs', began)
    carried = [
      (family_of(r.entries['ACTION'], *_kind(bench, s)), r.earned() == 1.0)
      for s, r in tried
    ] + [one for runs in ended.values() for e in runs for one in e.ideas]
    return {
      'runs': args.runs,
      'seeds': args.seeds,
      'ideas': len(tried),
      'executions': bench.executions,
      'wall_s': round(time.monotonic() - began, 1),
      'arms': {a.name: figures(bench, ended[a.name]) for a in wanted},
      'families': by_family(carried),
      'starts': bench.starts,
    }


def _kind(bench: Bench, state: ImplementerState) -> tuple[str, str]:
  spec = bench.spec(state.task)
  return spec.kind, spec.modality


def _tell(what: str, began: float) -> None:
  print(f'{time.monotonic() - began:6.0f} s  {what}', flush=True)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument(
    '--runs', type=int, default=15, help='a task, arm and seed'
  )
  parser.add_argument('--seeds', type=int, default=2)
  parser.add_argument('--ideas', type=int, default=570, help='for the table')
  parser.add_argument('--slots', type=int, default=2, help='of the sandbox')
  parser.add_argument('--tasks', default='', help='names, by commas; all')
  parser.add_argument('--arms', default='', help='names, by commas; all')
  parser.add_argument('--json', action='store_true', help='save the result')
  args = parser.parse_args()
  if args.runs < 3:
    parser.error(f'--runs={args.runs}: Avg@3 and Best@3 need 3 or more.')
  with tempfile.TemporaryDirectory(prefix='ideator-arms-') as work:
    result = measure(args, pathlib.Path(work))
  print(table(result))
  if args.json:
    path = machine.RESULTS / f'{NAME}.json'
    whole = {'machine': machine.describe(), **result}
    path.write_text(json.dumps(whole, indent=2) + '\n')


if __name__ == '__main__':
  main()
