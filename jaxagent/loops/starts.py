"""Where evaluation starts: scripts that no training state shares."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import random
from collections.abc import Mapping, Sequence

from jaxagent import types
from jaxagent.data import records as record_data
from jaxagent.envs import step_env
from jaxagent.loops import kept
from jaxagent.loops.errors import UserError
from jaxagent.loops.policy import seed_of
from jaxagent.metrics import Progress


@dataclasses.dataclass(frozen=True)
class Start:
  """A script to start from, with its scores on both hidden splits."""

  state: types.State
  private: float


def make_starts(host, per_task: int = 4) -> dict[str, list[Start]]:
  """Per task the starter script and edited ones, executed; cached on disk."""
  path = host.work / 'eval' / 'starts.json'
  names = host.heldin + host.heldout
  starts = kept.kept_json(path, lambda value: _starts_from(value, names))
  if starts is not None:
    return starts
  starts = {}
  with Progress('evaluation starts', len(names)) as progress:
    for task in names:
      starts[task] = _starts_of(host, task, per_task)
      progress.update()
      host.stop.check('finished stages are kept')
  write_json(
    path,
    {
      task: [
        {
          'state': record_data.state_to_json(s.state),
          'private': s.private,
        }
        for s in rows
      ]
      for task, rows in starts.items()
    },
  )
  return starts


def _starts_of(host, task: str, per_task: int) -> list[Start]:
  initial = host.env.initial_state(task)
  private = _starter_private(host, initial)
  rows = [Start(initial, private)]
  seen = {step_env.script_hash(initial)}
  rng = random.Random(seed_of(host.config.seed, 'starts', task))
  for attempt in range(20 * per_task):
    if len(rows) == per_task:
      break
    text = host.expert.act(initial, host.spec(task), rng, ())
    result = host.env.step(
      initial, text, split='valid', job_id=f'start-{task}-{attempt}'
    )
    if not (result.is_edit and result.score is not None):
      continue
    digest = step_env.script_hash(result.state)
    score = private_score(host, task, result)
    if digest in seen or score is None:
      continue
    seen.add(digest)
    fresh = fresh_state(result.state, start_score=initial.start_score)
    rows.append(Start(fresh, score))
  return rows


def private_score(host, task: str, result) -> float | None:
  """The private-split score of what a step's execution submitted."""
  execution = result.execution
  name = host.spec(task).submission
  if execution is None or name not in execution.collected:
    return None
  grade = host.grader.grade(task, execution.collected[name], split='private')
  return grade.score


def _starter_private(host, initial: types.State) -> float:
  task = initial.task
  result = host.env.step(
    initial,
    execute_response('train.py'),
    split='valid',
    job_id=f'starter-{task}',
  )
  score = private_score(host, task, result)
  if score is None:
    raise UserError(
      f'task {task}: the starter script was not graded '
      f'({result.outcome.value}: {result.message or result.observation}); '
      f'run `python -m jaxagent.tasks check {task}`.'
    )
  return score


def execute_response(script: str) -> str:
  """A response that runs `script`, in the format of paper 000 table 6."""
  return (
    'Reflection: None.\nResearch Plan and Status: Measure the script.\n'
    'Fact Check: None.\nThought: Run it.\nAction: Execute Script\n'
    f'Action Input: {json.dumps({"script_name": script})}'
  )


def _starts_from(value, names: Sequence[str]) -> dict[str, list[Start]]:
  """Starts of JSON; raises where a task of `names` has none."""
  starts = {
    task: [
      Start(record_data.state_from_json(r['state']), float(r['private']))
      for r in value[task]
    ]
    for task in names
  }
  if not all(starts.values()):
    raise ValueError('a task without a start')
  return starts


def script_hashes(starts: Mapping[str, Sequence[Start]]) -> set[str]:
  """Content hashes that training data must not hold."""
  return {
    step_env.script_hash(s.state) for rows in starts.values() for s in rows
  }


def fresh_state(state: types.State, start_score: float | None) -> types.State:
  """`state`'s script as the start of a trajectory: step 0, no history."""
  return dataclasses.replace(
    state,
    state_id=step_env.state_id(state.task, state.files, state.script, 0),
    start_score=start_score,
    last_outcome='ok',
    history=(),
    ideas=(),
    step=0,
  )


def write_json(path: pathlib.Path, value) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_suffix('.tmp')
  temporary.write_text(json.dumps(value))
  os.replace(temporary, path)
