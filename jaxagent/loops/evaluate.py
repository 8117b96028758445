"""Whole trajectories of a policy on held-in and held-out tasks.

Every trajectory starts from the task's starter (paper 000, section 5.1). At
each step the policy sees validation scores; what it leaves behind (its best
script by validation, the starter where nothing was better) counts with its
score on the private rows.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from jaxagent import audit, evaluation, interactions, types
from jaxagent.interactions import POLICY
from jaxagent.loops import kept, steps, walked, walks
from jaxagent.loops.errors import MachineryError, UserError, tolerated
from jaxagent.loops.policy import Policy, seed_of
from jaxagent.loops.recipes.trajectory import Trajectory
from jaxagent.loops.starts import Start, private_score, write_json
from jaxagent.metrics import Progress
from jaxagent.records import Evaluated, TakenStep


@dataclasses.dataclass
class Episode(walks.Walk):
  """One trajectory in progress, from the starter on.

  best_valid, private: of the best script so far.
  """

  best_valid: float | None = None
  private: float | None = None
  steps: list[TakenStep] = dataclasses.field(default_factory=list)

  def record(self, split: str) -> Evaluated:
    """One that is missing has no score, but a reason."""
    return Evaluated(
      task=self.task,
      index=self.index,
      split=split,
      score=None if self.missing else self.private,
      steps=tuple(self.steps),
      missing=bool(self.missing),
      reason=self.missing,
    )


def evaluate_policy(
  host, policy: Policy, label: str, starts: Mapping[str, Start]
) -> list[Evaluated]:
  """Runs every trajectory of `label`; returns and keeps their records."""
  recipe = Trajectory(
    policy.prompt_ids,
    lambda said: said if isinstance(said, str) else policy.text(said),
    max_steps=host.config.eval.max_steps,
    time_limit_s=host.config.eval.time_limit_s,
    reward=steps.whole_reward,
  )

  def draw(waiting: Sequence[Episode], step: int):
    # The same seeds for every policy: common random numbers.
    return policy.complete(
      [e.call.prompt for e in waiting],
      [_name(label, e) for e in waiting],
      [
        seed_of(host.config.seed, 'eval', e.task, e.index, len(e.steps))
        for e in waiting
      ],
    )

  return walk_all(
    host, label, starts, recipe, {POLICY: draw}, policy.prompt_text
  )


def walk_all(
  host,
  label: str,
  starts: Mapping[str, Start],
  recipe: Trajectory,
  draws: Mapping[str, walks.Draw],
  shown: Callable[[types.State], str],
) -> list[Evaluated]:
  """Every trajectory of every task; their records, kept under `label`.

  Killed, it goes on with the steps that each had made. Raises MachineryError where
  faults of ours cut more than a tenth short: the same command goes on with those.
  draws: the one role that speaks -> how its responses are drawn.
  shown: what it is prompted with, in words.
  """
  path = host.work / 'eval' / f'{label}.json'
  if (records := kept.kept_json(path, kept.trajectories)) is not None:
    return records
  config = host.config.eval
  log = walked.StepLog(walked.path_of(host.work, label))
  made = log.read()
  episodes = [
    _begun(host, recipe, task, starts[task], index, tuple(draws), made)
    for task in host.heldin + host.heldout
    for index in range(config.trajectories_per_task)
  ]

  def act(episode: Episode, step: int, suffix: str) -> str:
    return _act(host, episode, _name(label, episode) + suffix, log, shown)

  total = len(episodes) * config.max_steps
  begun = sum(len(e.steps) for e in episodes)
  with Progress(f'evaluate {label}', total, initial=begun) as progress:
    walks.drive(host, episodes, draws, act, lambda: progress.update(1))
  records = [
    e.record('heldin' if e.task in host.heldin else 'heldout') for e in episodes
  ]
  check_missing(label, records, len(records))
  sealed = audit.seal([r.to_json() for r in records], label)
  write_json(path, list(sealed))
  log.close()
  return records


def _begun(
  host, recipe: Trajectory, task: str, start: Start, index: int, roles, made
) -> Episode:
  """One trajectory, after the steps that were made of it before a kill."""
  lines = made.get((task, index), [])
  first, after = walked.states(lines, start.state, host.env.store)
  episode = Episode(
    task,
    index,
    interactions.Progress(recipe, first, roles=roles),
    best_valid=start.state.score,
    private=start.private,
    steps=walked.steps(lines),
  )
  for step, state in zip(episode.steps, after):
    record = step.record
    episode.progress.take(episode.call.call, record.response)
    executed = types.Executed(
      record.outcome, record.exec_s, state, record=record
    )
    episode.progress.take(episode.call.call, executed)
  ends = [line for line in lines if 'record' in line]
  if ends:
    episode.best_valid, episode.private = ends[-1]['best']
  return episode


def present(records: Sequence[Evaluated]) -> list[Evaluated]:
  """The records that count: those that no fault of ours cut short."""
  return [r for r in records if not r.missing]


def check_missing(label: str, records: Sequence[Evaluated], total: int) -> None:
  """Says what is missing; raises MachineryError where it is more than a tenth.

  To be asked before the records are kept for good. total: how many were begun.
  """
  reasons = Counter(r.reason for r in records if r.missing)
  if not reasons:
    return
  what = (
    f'evaluate {label}: {reasons.total()} of {total} trajectories are '
    'missing for a fault of the machinery'
  )
  why = f'most often: {reasons.most_common(1)[0][0]}'
  if reasons.total() > tolerated(total):
    raise MachineryError(
      f'{what}; {why}. Mend that and give the same command: it makes them.'
    )
  print(f'{what} and left out of the statistics; {why}')


def _name(label: str, episode: Episode) -> str:
  return f'eval-{label}-{episode.task}-{episode.index}-{len(episode.steps)}'


def _act(
  host, episode: Episode, job_id: str, log: walked.StepLog, shown
) -> str:
  """One execution; '', or what failed for no fault of the policy.

  The episode changes at the end alone, so that a failed step can be repeated.
  """
  call = episode.call
  state, text, left_s = call.request
  result = host.env.step(
    state, text, split='valid', job_id=job_id, most_s=left_s
  )
  if result.outcome.is_infrastructure:
    return f'{result.outcome.value}: {result.message}'
  executed = steps.told(host, state, text, result)
  private = None
  if result.score is not None and _better(
    host, episode.task, result.score, episode.best_valid
  ):
    private = private_score(host, episode.task, result)
  taken = TakenStep.of(
    executed.record,
    **steps.kept_files(host, state, result),
    **steps.said(host, shown(state), episode.progress.results[-1][1]),
  )
  best = episode.best_valid, episode.private
  if private is not None:
    best = result.score, private
  line = {
    'record': taken.to_json(),
    'best': best,
    'done': result.state is None,
    'workspace_id': taken.workspace_id,
  }
  log.append(episode.task, episode.index, line)
  episode.steps.append(taken)
  episode.best_valid, episode.private = best
  episode.progress.take(call.call, executed)
  return ''


def _better(host, task: str, score: float, best: float | None) -> bool:
  if best is None:
    return True
  return score > best if host.spec(task).higher_is_better else score < best


def scales(host, starts: Mapping[str, Start]) -> dict[str, evaluation.Scale]:
  """Private against private: m_init measured here, m_best of `task.yaml`.

  Raises UserError where they are one number: scores have no scale then.
  """
  for task, start in starts.items():
    if start.private == host.spec(task).m_best_private:
      raise UserError(
        f'task {task}: its starter scores {start.private:.6g} on the private rows, '
        'which is m_best_private of task.yaml: nothing can be better. Give a '
        f'weaker starter, or `python -m jaxagent.tasks measure {task}`.'
      )
  return {
    task: evaluation.Scale(
      start.private,
      host.spec(task).m_best_private,
      host.spec(task).higher_is_better,
    )
    for task, start in starts.items()
  }


def runs_of(records: Sequence[Evaluated], split: str) -> list[evaluation.Run]:
  """Records of `evaluate_policy` as the statistics take them."""
  runs = []
  for record in present(records):
    if record.split != split:
      continue
    steps = [s for s in record.steps if s.reward is not None]
    runs.append(
      evaluation.Run(
        record.task,
        record.score,
        tuple(s.reward for s in steps),
        tuple(s.record.valid_action for s in steps),
      )
    )
  return runs


def starter_runs(host, starts, split: str) -> list[evaluation.Run]:
  """The starter script itself: no action, its private score."""
  names = host.heldin if split == 'heldin' else host.heldout
  return [evaluation.Run(t, starts[t].private) for t in names]
