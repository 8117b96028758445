"""Whole trajectories of a policy on held-in and held-out tasks.

Every trajectory starts from the task's starter (paper 000, section 5.1). At
each step the policy sees validation scores; what it leaves behind (its best
script by validation, the starter where nothing was better) counts with its
score on the private rows.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxagent import audit, types
from jaxagent.analysis import evaluation
from jaxagent.data.prompts import Feed
from jaxagent.errors import MachineryError, UserError, in_one_line, tolerated
from jaxagent.interactions import Progress, Step
from jaxagent.metrics import Progress as ProgressBar
from jaxagent.recipes.ml_agent import steps
from jaxagent.recipes.ml_agent.trajectory import Action, Trajectory
from jaxagent.recipes.starts import Start, private_score, write_json
from jaxagent.records import Evaluated, TakenStep
from jaxagent.rollout.thread_sampler import FrozenRole
from jaxagent.rollout.work import Ask, Work
from jaxagent.runtime import kept
from jaxagent.training import rollouts
from jaxagent.training.policy import Policy, seed_of

if TYPE_CHECKING:
  from jaxagent.runtime.host import Host


@dataclasses.dataclass(frozen=True)
class Episode:
  """One trajectory of an evaluation, before it has run."""

  task: str
  index: int
  state: types.State

  @property
  def name(self) -> str:
    """Unique within the evaluation."""
    return f'{self.task}-{self.index}'


class Episodes:
  """The interaction of trajectories, from episodes instead of states."""

  def __init__(self, recipe: Trajectory):
    self._recipe = recipe
    self.advance = recipe.advance

  def start(self, payload: Episode) -> Step:
    return self._recipe.start(payload.state)


def evaluate_policy(
  host: Host, policy: Policy, label: str, starts: Mapping[str, Start]
) -> list[Evaluated]:
  """Runs every trajectory of `label`; returns and keeps their records."""
  recipe = Trajectory(
    policy.prompt_ids,
    policy.text,
    max_steps=host.config.eval.max_steps,
    time_limit_s=host.config.eval.time_limit_s,
    reward=steps.whole_reward,
  )

  def request(ask: Ask) -> types.Request:
    # The same seeds for every policy: common random numbers.
    seed = seed_of(host.config.seed, 'eval', *_place(ask))
    return policy.request(ask.call.prompt, str(ask.key), seed)

  return evaluate(
    host,
    label,
    starts,
    recipe,
    policy.prompt_text,
    policy=rollouts.PolicyRole(policy.engine, request),
  )


def _place(ask: Ask) -> tuple[str, int, int]:
  """Returns (task, index, number of the step) of an ask."""
  episode = ask.prompt.payload
  return episode.task, episode.index, ask.call.call // 2


def evaluate_text_model(
  host: Host,
  role: str,
  starts: Mapping[str, Start],
  answer: Callable[[types.State, str, int, int], types.TextCompletion],
  prompt_text: Callable[[types.State], str],
  max_concurrency: int,
) -> list[Evaluated]:
  """Evaluates, as `evaluate_policy` does, a frozen role that is shown states.

  answer: (state, task, index of the trajectory, number of the step) -> its answer.
  prompt_text: state -> the text of its prompt.
  """
  recipe = Trajectory(
    _same,
    text_of,
    max_steps=host.config.eval.max_steps,
    time_limit_s=host.config.eval.time_limit_s,
    role=role,
  )
  frozen = FrozenRole(
    lambda ask: answer(ask.call.prompt, *_place(ask)), max_concurrency
  )
  return evaluate(
    host, role, starts, recipe, prompt_text, frozen={role: frozen}
  )


def _same(value: Any) -> Any:
  return value


def text_of(completion: types.TextCompletion) -> str:
  """Returns the answer's text."""
  return completion.text


def evaluate(
  host: Host,
  label: str,
  starts: Mapping[str, Start],
  recipe: Trajectory,
  prompt_text: Callable[[types.State], str],
  **roles: Any,
) -> list[Evaluated]:
  """Runs every trajectory of every task; returns their records, kept as `label`.

  A killed evaluation resumes each trajectory where it was. Raises MachineryError
  as soon as infrastructure errors have cut more than a tenth short; the same
  command then resumes those.

  Args:
    prompt_text: state -> the text of its prompt.
    roles: samplers by role (`policy` or `frozen`); see `rollouts.run`.
  """
  path = host.work / 'eval' / f'{label}.json'
  folder = rollouts.journal_of(host.work, label)
  if (records := kept.kept_json(path, kept.trajectories)) is not None:
    rollouts.forget(folder)  # a kill may have come in between
    return records
  _tell_of_older(path)
  config, feed = host.config.eval, Feed()
  episodes = {
    episode.name: episode
    for task in host.heldin + host.heldout
    for index in range(config.trajectories_per_task)
    for episode in (Episode(task, index, starts[task].state),)
  }
  for name, episode in episodes.items():
    feed.push(name, episode)
  ended: dict[str, Evaluated] = {}
  missing: list[Evaluated] = []

  def deliver(
    prompt: types.Prompt, progress: Progress | None, error: str
  ) -> None:
    episode = prompt.payload
    ended[prompt.prompt_id] = record = _record(
      host, episode, starts[episode.task], progress, error
    )
    if error:
      missing.append(record)

  total = len(episodes) * config.max_steps
  with ProgressBar(f'evaluate {label}', total) as bar:

    def execute(work: Work, job_id: str) -> types.Executed:
      executed = _execute(host, work, job_id, prompt_text)
      bar.update()
      return executed

    rollouts.run(
      host,
      folder,
      feed,
      Episodes(recipe),
      execute=execute,
      deliver=deliver,
      name=f'eval-{label}',
      check=lambda: check_too_many(label, missing, len(episodes)),
      **roles,
    )
  records = [ended[name] for name in episodes]
  check_missing(label, records, len(records))
  sealed = audit.seal([r.to_json() for r in records], label)
  write_json(path, list(sealed))
  rollouts.forget(folder)
  return records


def _tell_of_older(path: pathlib.Path) -> None:
  """Prints that an unfinished evaluation of an older version is made anew."""
  older = path.with_suffix('.steps.jsonl')
  if older.exists():
    print(
      f'{older} was written by a version before journals, whose last commit is '
      '275c38c: that one resumes it; here its trajectories are made again.'
    )


def _record(
  host: Host,
  episode: Episode,
  start: Start,
  progress: Progress | None,
  error: str,
) -> Evaluated:
  """Returns the record of a trajectory.

  One that an infrastructure error ended has no score, but a reason.
  """
  done = [] if progress is None else steps_of(progress)
  taken = tuple(map(taken_step, done))
  better = [step.private for step in taken if step.private is not None]
  return Evaluated(
    task=episode.task,
    index=episode.index,
    split=split_of(host, episode.task),
    score=None if error else (better or [start.private])[-1],
    steps=taken,
    missing=bool(error),
    reason=in_one_line(error),
  )


def split_of(host: Host, task: str) -> str:
  """Returns 'heldin' or 'heldout'."""
  return 'heldin' if task in host.heldin else 'heldout'


def steps_of(progress: Progress) -> list[types.Executed]:
  """Returns the executions of a rollout, in their order."""
  results = [result for _, result in progress.results]
  return [one for one in results if isinstance(one, types.Executed)]


def taken_step(executed: types.Executed) -> TakenStep:
  """Returns an execution as stored trajectories have it.

  Raises UserError where its record gives no reward: fix its class.
  """
  record = executed.made
  try:
    reward = record.earned()
  except Exception as error:  # a recipe's own class may raise anything
    raise UserError(
      f'task {record.task}: no reward can be derived of a {record.KIND} record: '
      f'{type(error).__name__}: {error}. Fix {type(record).__name__}.derive and '
      'rerun the same command: what was executed is kept.'
    ) from error
  return TakenStep(record=record, reward=reward, **executed.kept)


def present(records: Sequence[Evaluated]) -> list[Evaluated]:
  """Returns the records that count: those that no infrastructure error cut short."""
  return [r for r in records if not r.missing]


def check_missing(label: str, records: Sequence[Evaluated], total: int) -> None:
  """Prints what is missing; raises MachineryError where it is more than a tenth.

  Called before the records are stored for good. total: how many were begun.
  """
  reasons = Counter(r.reason for r in records if r.missing)
  if not reasons:
    return
  what = (
    f'evaluate {label}: {reasons.total()} of {total} trajectories were lost to '
    'infrastructure errors'
  )
  why = f'most often: {reasons.most_common(1)[0][0]}'
  if reasons.total() > tolerated(total):
    raise MachineryError(
      f'{what}; {why}. Fix the cause and rerun the same command; it resumes from '
      'the other trajectories.'
    )
  print(f'{what} and are left out of the statistics; {why}')


def check_too_many(
  label: str, missing: Sequence[Evaluated], total: int
) -> None:
  """Raises MachineryError once more than a tenth are missing.

  An endpoint that is gone need not be asked for every trajectory first.
  """
  if len(missing) > tolerated(total):
    check_missing(label, missing, total)


def _execute(
  host: Host, work: Work, job_id: str, prompt_text: Callable[[types.State], str]
) -> types.Executed:
  """Carries out one step; grades the best so far on the private rows."""
  action, task = work.call.request, work.prompt.payload.task
  state = action.state
  result = host.env.step(
    state,
    action.response,
    split='valid',
    job_id=job_id,
    most_s=action.left_s,
  )
  executed = steps.executed(host, state, action.response, result)
  if result.outcome.is_infrastructure:
    return executed
  found = {
    **steps.kept_files(host, state, result),
    **steps.completion_record(host, prompt_text(state), action.completion),
  }
  if result.score is not None and _is_best(host, task, action, result.score):
    private = private_score(host, task, result)
    if private is not None:
      found['private'] = private
  return dataclasses.replace(executed, kept=found)


def _is_best(host: Host, task: str, action: Action, score: float) -> bool:
  """Whether a validation score is above the starter's and those that counted."""
  best = action.state.start_score
  for one in action.before:
    if 'private' in one.kept:
      best = one.made.score_after
  return _better(host, task, score, best)


def _better(host: Host, task: str, score: float, best: float | None) -> bool:
  if best is None:
    return True
  return score > best if host.spec(task).higher_is_better else score < best


def scales(
  host: Host, starts: Mapping[str, Start]
) -> dict[str, evaluation.Scale]:
  """Returns the scale of each task's private score.

  It reaches from the starter's score, measured here, to `m_best_private` of
  `task.yaml`. Raises UserError where they are one number: then there is no scale.
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
  """Returns the records of a split in the form of `jaxagent.analysis.evaluation`."""
  runs = []
  for record in present(records):
    if record.split != split:
      continue
    steps = [s for s in record.steps if s.reward is not None]
    runs.append(
      evaluation.Run(
        record.task,
        record.score,
        tuple(s.reward for s in steps if s.reward is not None),
        tuple(s.record.valid_action for s in steps),
      )
    )
  return runs


def starter_runs(
  host: Host, starts: Mapping[str, Start], split: str
) -> list[evaluation.Run]:
  """Returns a run of each starter script: its private score, without a step."""
  names = host.heldin if split == 'heldin' else host.heldout
  return [evaluation.Run(t, starts[t].private) for t in names]
