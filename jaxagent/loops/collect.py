"""Expert trajectories (paper 000, 4.1 and B.2): diverse ideas, real steps."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from jaxagent import audit, disk, interactions, types
from jaxagent.clock import Deadline
from jaxagent.data import ideas as idea_data
from jaxagent.data import records as record_data
from jaxagent.envs.interfaces import TextModelError
from jaxagent.loops import answers, kept, steps, text_models
from jaxagent.loops.errors import (
  Interrupted,
  MachineryError,
  UserError,
  in_one_line,
  tolerated,
)
from jaxagent.loops.policy import seed_of
from jaxagent.loops.recipes.trajectory import Trajectory
from jaxagent.loops.starts import Start, fresh_state, write_json
from jaxagent.metrics import Progress
from jaxagent.records import Collected, TakenStep
from jaxagent.types import Outcome

EXPERT = 'expert'  # the role: frozen, it speaks text


def run(host, starts: Mapping[str, Start]) -> list[Collected]:
  """Makes what is missing of the trajectories; returns all, in order.

  Each trajectory depends on (seed, task, index) alone and is appended whole,
  so a killed run goes on with the missing ones: none lost, none doubled. Those
  that a fault of ours cut short are kept at the end, with the steps they have.
  Raises MachineryError where they are more than a tenth.
  """
  config = host.config.collect
  store = record_data.TrajectoryStore(
    host.work / 'collect' / 'trajectories.jsonl'
  )
  kept.mend_lines(store.path, Collected.from_json)
  have = {(r.task, r.index) for r in _whole(host, store)}
  todo = [
    (task, index)
    for index in range(config.trajectories_per_task)
    for task in host.heldin
    if (task, index) not in have
  ]
  began = time.monotonic()
  initial = {task: starts[task].state for task in host.heldin}
  lacking = dict.fromkeys(task for task, _ in todo)
  embed = text_models.make_embedder(host.config, host.work)
  pools = {task: _ideas(host, initial[task], embed) for task in lacking}
  total = config.trajectories_per_task * len(host.heldin)
  with (
    Progress('collect', total, initial=total - len(todo)) as progress,
    concurrent.futures.ThreadPoolExecutor(2 * host.config.sandbox.slots) as ex,
  ):
    waiting = iter(todo)
    futures = set()
    cut = []

    def start_next():
      for task, index in waiting:
        futures.add(
          ex.submit(_trajectory, host, initial[task], index, pools[task])
        )
        return

    for _ in range(2 * host.config.sandbox.slots):
      start_next()
    while futures:
      done, rest = concurrent.futures.wait(
        futures, return_when=concurrent.futures.FIRST_COMPLETED
      )
      futures.clear()
      futures.update(rest)
      for future in done:
        record = future.result()
        if record is None:
          continue
        cut.append(record) if record.fault else _keep(store, record)
        progress.update()
        if host.stop.signal is None and len(cut) <= tolerated(total):
          start_next()
    host.stop.check(f'trajectories that were whole are kept in {store.path}')
    _tell_rate(len(todo), time.monotonic() - began)
    _tell_cut(cut, total, store.path)
  for record in cut:
    _keep(store, record)
  records = _read(store)
  _tell_invalid(host, records, store.path)
  return sorted(records, key=lambda r: (r.task, r.index))


def _keep(store: record_data.TrajectoryStore, record: Collected) -> None:
  value = record.to_json()
  (sealed,) = audit.seal([value], audit.name_of(value))
  store.append(sealed)


def _read(store: record_data.TrajectoryStore) -> list[Collected]:
  return [Collected.from_json(value) for value in store.read()]


def _whole(host, store: record_data.TrajectoryStore) -> list[Collected]:
  """The records; raises UserError where the states of some are gone."""
  records = _read(store)
  keys = {step.state for r in records for step in r.steps
          if isinstance(step.state, str)}  # fmt: skip
  if missing := host.env.store.missing(keys):
    raise UserError(
      f'{store.path}: {len(missing)} of the {len(keys)} states that its steps '
      f'were taken in are not in {host.work / "snapshots.sqlite"}. Put that '
      'file back, or remove the first: its trajectories are then made again.'
    )
  return records


def _tell_rate(made: int, seconds: float) -> None:
  if made:
    print(
      f'collect: {made} trajectories in {seconds:.0f} s, '
      f'{3600 * made / seconds:.0f} an hour'
    )


def _tell_cut(cut: list[Collected], total: int, path) -> None:
  if not cut:
    return
  reasons = Counter(record.fault for record in cut)
  what = (
    f'{len(cut)} of {total} trajectories were cut short by a fault of the '
    f'machinery, most often: {reasons.most_common(1)[0][0]}'
  )
  if len(cut) > tolerated(total):
    raise MachineryError(
      f'collect: {what}. Mend that and give the same command: it goes on with '
      f'the whole ones in {path}.'
    )
  print(f'collect: {what}')


def _tell_invalid(host, records: list[Collected], path) -> None:
  """Says how many steps of a model were no valid action.

  Raises UserError where all of them were: there is nothing to learn from.
  """
  steps_made = [step.record for record in records for step in record.steps]
  invalid = [
    s
    for s in steps_made
    if s.outcome in (Outcome.INVALID_FORMAT, Outcome.INVALID_ACTION)
  ]
  if not invalid or host.expert.is_stand_in:
    return
  kinds = Counter(step.outcome.value for step in invalid)
  example = next(s for s in invalid if s.outcome == kinds.most_common(1)[0][0])
  what = (
    f'{" and ".join(f"{n} {kind}" for kind, n in kinds.most_common())} of '
    f'{len(steps_made)} steps of {host.expert.name}, such as '
    f'{_shown(example.response)}: {_shown(example.observation)}'
  )
  if len(invalid) < len(steps_made):
    print(f'collect: {what}')
    return
  raise UserError(
    f'collect: {what}. There is nothing to learn from: take another model with '
    '--config.expert.model, more room with --config.expert.max_tokens, or a parser '
    f'that takes more with --config.env.parse_mode=compatible, and remove {path} or '
    'give --work_dir=NEW.'
  )


def _shown(text: str, most: int = 160) -> str:
  text = ' '.join(text.split())
  return repr(text if len(text) <= most else text[:most] + ' ...')


def _ideas(host, initial: types.State, embed) -> list[str]:
  """The most diverse ideas of the task's pool."""
  config, task = host.config.collect, initial.task
  pool = _pool(host, initial)
  if len(pool) < config.idea_pool:
    raise UserError(
      f'{task}: {len(pool)} ideas; config.collect.idea_pool asks for at '
      f'least {config.idea_pool}; lower it.'
    )
  try:
    return idea_data.select_diverse(pool, k=config.ideas_kept, embed=embed)
  except TextModelError as error:
    raise UserError(
      f'config.embeddings: {error} Mend that, or set '
      'config.embeddings.kind=tfidf.'
    ) from error


def _pool(host, initial: types.State) -> list[str]:
  """Ideas of the expert's model (paper 000, table 7), or the scripted ones.

  A model's are kept in `collect/ideas/TASK.json`: it is asked once.
  """
  spec, wanted = host.spec(initial.task), host.config.collect.idea_pool
  if host.config.expert.kind == 'scripted':
    return idea_data.idea_pool(spec)
  path = host.work / 'collect' / 'ideas' / f'{spec.name}.json'
  pool = kept.kept_json(path, kept.texts)
  if pool is not None and len(pool) >= wanted:
    return pool
  try:
    pool = idea_data.model_idea_pool(
      host.expert.client,
      spec,
      initial.files[initial.script],
      n=wanted,
      max_calls=max(12, wanted // 8),
      max_tokens=max(idea_data.MAX_TOKENS, host.config.expert.max_tokens),
    )
  except TextModelError as error:
    raise UserError(
      f'task {spec.name}: no pool of ideas from config.expert: {error} Lower '
      f'config.collect.idea_pool={wanted}, or take another model.'
    ) from error
  write_json(path, pool)
  return pool


def _trajectory(
  host, initial: types.State, index: int, pool
) -> Collected | None:
  """One trajectory; its `fault` says what of ours cut it short, or ''.

  None where the run was told to stop in between: it is made again.
  """
  rng = random.Random(seed_of(host.config.seed, 'collect', initial.task, index))
  drawn = tuple(idea_data.draw(pool, rng))
  made: list[TakenStep] = []
  try:
    fault = _walk(host, initial, index, drawn, rng, made)
  except Interrupted:
    return None
  except Exception as error:  # noqa: BLE001 - any fault here is ours
    if disk.is_full(error):
      raise
    fault = f'{type(error).__name__}: {error}'
  return Collected(
    task=initial.task,
    index=index,
    ideas=drawn,
    stand_ins=tuple(host.stand_ins),
    steps=tuple(made),
    fault=in_one_line(fault),
  )


def _walk(host, initial, index: int, drawn, rng, made: list[TakenStep]) -> str:
  """1 to 3 ideas first, then the expert's own; '', or what failed of ours.

  Fills `made`.
  """
  config, task = host.config.collect, initial.task
  whole = Deadline.after(config.time_limit_s)
  state = initial
  if rng.random() < config.varied_start:
    state = _varied(host, initial, rng, f'vary-{task}-{index}', whole)
  if host.config.rollout.prompt_style == 'full':
    state = with_ideas(state, drawn)
  expert = spoken(EXPERT, max_steps=config.max_steps)
  walk = interactions.Progress(expert, state, roles=(EXPERT,))
  while not walk.finished:
    host.stop.check('')  # a trajectory may take half an hour
    (call,) = walk.open.values()
    if isinstance(call, interactions.Generate):
      if not whole.remaining():
        break
      # The first steps follow the drawn ideas (paper 000, B.2).
      said = answers.asked(
        host.expert, call.prompt, host.spec(task), rng, drawn
      )
      walk.take(call.call, said)
      continue
    state, text, _ = call.request
    result = steps.execute(
      host,
      state,
      text,
      job_id=f'collect-{task}-{index}-{len(made)}',
      deadline=whole,
    )
    if result.outcome is types.Outcome.DEADLINE and not whole.remaining():
      break  # it has the steps that there was time for
    if result.outcome.is_infrastructure:
      return f'{result.outcome.value}: {result.message}'
    store = host.env.store  # on disk before the record
    kept_states = {
      'state': store.put(state),
      'workspace_id': store.put(result.state or state),
    }
    # The prompt is the state's: it is not kept once more.
    made.append(TakenStep.of(result.record, **kept_states, **said.cost))
    walk.take(call.call, result)
  return ''


def with_ideas(state: types.State, ideas: Sequence[str]) -> types.State:
  """The state with ideas in its problem, for whoever is prompted with it.

  Paper 000 writes them into research_problem.txt (appendix B.2), so that the
  trained policy is shown them as well. A compact prompt has no room for them.
  """
  name = '\x1f'.join((state.state_id, *ideas)).encode('utf-8', 'surrogatepass')
  return dataclasses.replace(
    state,
    ideas=tuple(ideas),
    state_id=hashlib.sha256(name).hexdigest()[:24],
  )


def spoken(role: str, **limits) -> Trajectory:
  """The trajectory of a role that is shown a state and answers with text."""
  return Trajectory(_same, _same, role=role, **limits)


def _same(value):
  return value


def _varied(host, initial, rng, job_id: str, whole: Deadline) -> types.State:
  """The starter after one random edit that ran; else the starter."""
  for attempt in range(4):
    text = answers.asked(host.expert, initial, host.spec(initial.task), rng)
    result = host.env.step(
      initial,
      text,
      split='valid',
      job_id=f'{job_id}-{attempt}',
      deadline=whole,
    )
    if result.is_edit and result.score is not None:
      return fresh_state(result.state, start_score=initial.start_score)
  return initial
