"""Evaluation: rollouts without a learner, checked, sealed, kept in `eval/LABEL.json`.

Every recipe's evaluation is an `Evaluation` with hooks of its own: which rollouts, how
an execution is carried out, which records they make.
"""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jaxagent import audit, types
from jaxagent.data.prompts import Feed
from jaxagent.errors import MachineryError, UserError, tolerated
from jaxagent.interactions import Interaction, RolloutState
from jaxagent.metrics import ProgressBar
from jaxagent.recipes.starts import write_json
from jaxagent.records import Evaluated, TakenStep, reward_of
from jaxagent.rollout.requests import ExecutionRequest
from jaxagent.rollout.thread_sampler import FrozenRole
from jaxagent.runtime import kept
from jaxagent.training import rollouts

if TYPE_CHECKING:
  from jaxagent.runtime.context import RunContext


class Evaluation(abc.ABC):
  """Rollouts of one label.

  context: tasks, sandbox, environment.
  label: names the file of its records, and its jobs.
  title: for people.
  rollouts, executions: how many there will be at most.
  interaction: of the rollouts.
  policy: engine and requests of the policy, where it takes part.
  frozen: role -> how its answers are drawn.
  feed: the prompts; `begin` and `ended` push into it.
  missing: records of rollouts that infrastructure errors ended.
  """

  interaction: Interaction
  policy: rollouts.PolicyRole | None = None
  frozen: Mapping[str, FrozenRole] = {}

  def __init__(
    self,
    context: RunContext,
    label: str,
    title: str,
    rollouts: int,
    executions: int,
  ):
    self.context, self.label, self.title = context, label, title
    self.rollouts, self.executions = rollouts, executions
    self.feed = Feed()
    self.missing: list[Evaluated] = []
    # rollout -> seconds of its executions, in this attempt or as the journal has them
    self._took_s: dict[str, float] = {}

  @abc.abstractmethod
  def begin(self) -> None:
    """Pushes the first prompts into the feed."""

  @abc.abstractmethod
  def execute(self, work: ExecutionRequest, job_id: str) -> types.Executed:
    """Carries out one execution, graded on the private rows as well."""

  @abc.abstractmethod
  def ended(
    self, prompt: types.Prompt, progress: RolloutState | None, error: str
  ) -> None:
    """Takes a rollout as it ends; may push more prompts into the feed.

    error: of the infrastructure that ended it; '' where none did.
    """

  @abc.abstractmethod
  def records(self) -> list[Evaluated]:
    """Returns the records of all rollouts, once they have ended."""

  def begun(self, found: Sequence[Evaluated]) -> int:
    """Returns how many rollouts there were."""
    return len(found)

  def run(self) -> list[Evaluated]:
    """Runs what is not stored yet; returns and stores the records.

    A killed evaluation resumes each rollout where it was. Raises UserError once
    `eval.hours` are spent, from where it resumes with more, and MachineryError as soon as
    infrastructure errors have cut more than a tenth short; the same command then resumes
    those.
    """
    path = self.context.work / 'eval' / f'{self.label}.json'
    folder = rollouts.journal_of(self.context.work, self.label)
    if (stored := kept.kept_json(path, kept.trajectories)) is not None:
      rollouts.forget(folder)  # a kill may have come in between
      return stored
    self.begin()
    with ProgressBar(self.title, self.executions) as bar:

      def execute(work: ExecutionRequest, job_id: str) -> types.Executed:
        self._check_hours()
        executed = self.execute(work, job_id)
        name = work.prompt.prompt_id
        self._took_s[name] = self._took_s.get(name, 0.0) + executed.exec_s
        bar.update()
        return executed

      rollouts.run(
        self.context,
        folder,
        rollouts.RolloutStage(
          f'eval-{self.label}',
          self.feed,
          self.interaction,
          execute=execute,
          deliver=self._deliver,
          frozen=self.frozen,
          policy=self.policy,
        ),
        check=self._check_too_many,
      )
    found = self.records()
    check_missing(self.title, self.missing, self.begun(found))
    sealed = audit.seal([r.to_json() for r in found], self.label)
    write_json(path, list(sealed))
    rollouts.forget(folder)
    return found

  def _deliver(
    self, prompt: types.Prompt, progress: RolloutState | None, error: str
  ) -> None:
    """Takes a rollout that ended, now or before this attempt."""
    seconds = sum(one.exec_s for one in steps_of(progress))
    self._took_s[prompt.prompt_id] = seconds
    self.ended(prompt, progress, error)

  def _check_hours(self) -> None:
    """Raises UserError where no execution may begin any more."""
    # A copy: the threads of other executions write meanwhile.
    hours, took_s = self.context.config.eval.hours, tuple(self._took_s.values())
    if 0 < 3600 * hours <= sum(took_s):
      raise UserError(
        f'{self.title}: config.eval.hours={hours:g} are spent, executions took '
        f'{sum(took_s) / 3600:.3g} h. Raise it and rerun the same command; it resumes.'
      )

  def _check_too_many(self) -> None:
    """Raises MachineryError once more than a tenth are missing.

    An endpoint that is gone need not be asked for every trajectory first.
    """
    if len(self.missing) > tolerated(self.rollouts):
      check_missing(self.title, self.missing, self.rollouts)


def split_of(context: RunContext, task: str) -> str:
  """Returns 'heldin' or 'heldout'."""
  return 'heldin' if task in context.heldin else 'heldout'


def steps_of(progress: RolloutState | None) -> list[types.Executed]:
  """Returns the executions of a rollout, in their order."""
  if progress is None:
    return []
  results = [result for _, result in progress.results]
  return [one for one in results if isinstance(one, types.Executed)]


def taken_step(executed: types.Executed) -> TakenStep:
  """Returns an execution as stored trajectories have it.

  Raises UserError where its record gives no reward: fix its class.
  """
  record = executed.made
  reward = record.checked(reward_of(record))
  return TakenStep(record=record, reward=reward, **executed.kept)


def present(records: Sequence[Evaluated]) -> list[Evaluated]:
  """Returns the records that count: those that no infrastructure error cut short."""
  return [r for r in records if not r.missing]


def check_missing(title: str, missing: Sequence[Evaluated], total: int) -> None:
  """Prints what is missing; raises MachineryError where it is more than a tenth.

  Called before the records are stored for good. total: how many were begun.
  """
  reasons = Counter(r.reason for r in missing)
  if not reasons:
    return
  what = (
    f'{title}: {reasons.total()} of {total} trajectories were lost to '
    'infrastructure errors'
  )
  why = f'most often: {reasons.most_common(1)[0][0]}'
  if reasons.total() > tolerated(total):
    raise MachineryError(
      f'{what}; {why}. Fix the cause and rerun the same command; it resumes from '
      'the other trajectories.'
    )
  print(f'{what} and are left out of the statistics; {why}')
