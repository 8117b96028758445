"""The stages of every recipe that trains a policy: SFT, RL, evaluation, report."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from jaxagent.config.recipe import Recipe
from jaxagent.errors import UserError

if TYPE_CHECKING:
  import pathlib

  from ml_collections import ConfigDict

  from jaxagent.data.conversations import Conversation
  from jaxagent.learner import Learner
  from jaxagent.recipes.starts import Start
  from jaxagent.runtime.context import RunContext
  from jaxagent.training import sft
  from jaxagent.training.multi_process import Leader
  from jaxagent.training.policy import PolicySampler
  from jaxagent.training.workflow import RolloutWorkflow


class TrainedPolicy(Recipe):
  """A policy: fine-tuned on data, trained by RL, evaluated after each.

  `run` is the order of things. A subclass says what data SFT has, what RL trains on
  and how a policy is evaluated. During `run` it has these members:

  context: tasks, sandbox, environment.
  starts: task -> its starter, run and scored.
  imported: conversations of `config.sft.conversations`, to be learned from instead
    of the recipe's own data.
  policy: samples with the learner's weights; there once `rows` is called.
  learner: holds policy, value model and reference; likewise.
  """

  stages: ClassVar[tuple[str, ...]] = ('all', 'collect', 'sft', 'evaluate')

  context: RunContext
  starts: Mapping[str, Start]
  imported: Sequence[Conversation]
  policy: PolicySampler
  learner: Learner | Leader

  def __init__(self, config: ConfigDict):
    super().__init__(config)
    self.imported = ()

  # What a subclass says -------------------------------------------------------

  def prepare(self) -> None:
    """Makes the data that SFT and RL start from, such as expert trajectories."""

  def texts(self) -> Iterable[str]:
    """Returns prompts and responses that a tokenizer of the run is trained on."""
    return ()

  def check_tokenizer(self, tokenizer: Any) -> None:
    """Raises UserError where prompts do not fit; called before any model is made."""

  def check_policy(self) -> None:
    """Raises UserError where `self.policy` does not fit; called before SFT."""

  def rows(self) -> list[sft.Row]:
    """Returns the rows of SFT, by `self.policy`."""
    return []

  @property
  def fine_tunes(self) -> bool:
    """Whether there is SFT; without it the label 'sft' is not evaluated."""
    return True

  @abc.abstractmethod
  def workflow(self) -> RolloutWorkflow:
    """Returns what RL trains on."""

  def before_rl(self) -> None:
    """Runs before the first update of RL, such as a warm-up of the critic."""

  @abc.abstractmethod
  def evaluate(self, label: str) -> None:
    """Evaluates `self.policy` and keeps the trajectories in `eval/LABEL.json`."""

  def finish(self, labels: Sequence[str]) -> None:
    """Writes summary and report. labels: policies that may have been evaluated."""
    from jaxagent.recipes import stages

    stages.finish(self.context, self.starts, labels, extra=self.figures(labels))

  def figures(self, labels: Sequence[str]) -> Mapping[str, Any]:
    """Returns figures of its own, JSON-able, for `extra` of summary.json."""
    return {}

  def collected_plan(self, tasks: int) -> str:
    """Returns what `--dry_run` says of the data, for so many tasks."""
    return 'none'

  def sft_plan(self) -> str:
    """Returns what `--dry_run` says of SFT."""
    options, file = self.config.sft, self.config.sft.conversations
    text = (
      f'{options.epochs} epochs, batch {options.batch_size}, lr {options.lr:g}'
    )
    return f'{text}, conversations of {file}' if file else text

  def batch_unit(self) -> str:
    """Returns the unit that a batch of RL is counted in."""
    return 'rollouts'

  def evaluated_plan(self, tasks: int) -> str:
    """Returns what `--dry_run` says of one evaluation, for so many tasks."""
    runs = self.config.eval.trajectories_per_task * tasks
    return (
      f'{runs} trajectories, at most {runs * self.config.eval.max_steps} steps'
    )

  # The stages -----------------------------------------------------------------

  @property
  def has_policy(self) -> bool:
    return self.config.stage != 'collect'

  @property
  def runs_rl(self) -> bool:
    return self.config.stage == 'all'

  def check_work_dir(self, work: pathlib.Path) -> None:
    from jaxagent.training import device

    device.check_base(self.config, work)
    if self.config.stage == 'evaluate':
      device.check_trained(work)

  def plan(self, heldin: Sequence[str], heldout: Sequence[str]) -> list[str]:
    rl, stage = self.config.rl, self.config.stage
    validated = (
      f', validation every {rl.validate_every}' if rl.validate_every else ''
    )
    policies = [p for p in self.config.eval.policies if p != 'starter']
    if stage == 'sft':
      policies = [p for p in policies if p == 'sft']
    updates = (
      f'{rl.updates} updates of {rl.batch_size} {self.batch_unit()} '
      f'({rl.estimator}, {rl.rest}, {rl.weighting} weights), lr {rl.policy_lr:g} '
      f'policy and {rl.value_lr:g} value, KL {rl.kl_coef:g}{validated}'
    )
    if stage == 'evaluate':
      updates = "none: the work directory's policy"
    lines = {
      'collect': self.collected_plan(len(heldin)),
      'sft': self.sft_plan(),
      'rl': updates,
      'evaluate': f'{self.evaluated_plan(len(heldin) + len(heldout))}, for each of '
      f'{" and ".join(policies) or "no policy"}',
    }
    if stage == 'collect':
      lines = {'collect': lines['collect']}
    elif stage == 'sft':
      del lines['rl']
    return [
      f'{n} {name:10} {text}' for n, (name, text) in enumerate(lines.items(), 2)
    ]

  def run(self, context: RunContext, stack: contextlib.ExitStack) -> None:
    """Runs the stages up to the configured one."""
    from jaxagent.recipes import sft_data, stages
    from jaxagent.recipes.starts import make_starts
    from jaxagent.training import device, rl

    self.context, stage = context, self.config.stage
    self.imported = sft_data.imported(self.config)
    with stages.timed(context, 'starts'):
      self.starts = make_starts(context)
    self.prepare()
    if stage == 'collect':
      return
    self.fine_tune(stack)
    labels = ('sft', 'rl') if self.imported or self.fine_tunes else ('rl',)
    if 'sft' in labels:
      self._evaluate('sft')
    if stage == 'sft':
      return
    if stage == 'evaluate':
      device.restore_rl(context, self.learner)
    else:
      self.learner.start_rl()
      self.before_rl()
      with stages.timed(context, 'rl'):
        rl.run(context, self.workflow(), self.learner, self.policy)
      device.restore_best(context, self.learner)
    self._evaluate('rl')
    self.finish(labels)

  def fine_tune(self, stack: contextlib.ExitStack) -> None:
    """Makes tokenizer, learner and policy, and does SFT, or loads what it made."""
    from jaxagent.recipes import sft_data, stages
    from jaxagent.training import device, sft

    context = self.context
    with stages.timed(context, 'sft'):
      tokenizer = device.make_tokenizer(context, self.texts())
      self.check_tokenizer(tokenizer)
      self.learner = device.make_learner(context, tokenizer)
      self.policy = device.make_policy(context, self.learner, tokenizer)
      stack.callback(self.policy.engine.close)
      self.check_policy()
      if self.imported:
        rows = sft_data.rows_of_imported(self.imported, self.policy)
        sft.run(context, self.learner, rows)
      elif self.fine_tunes:
        sft.run(context, self.learner, self.rows())
      elif self.config.model.lora.rank and not self.config.model.path:
        raise UserError(
          f'config.model.lora.rank={self.config.model.lora.rank}: adapters on random '
          'weights learn nothing, and there are no rows of SFT that would fill them; '
          'give a model with --config.model.path, or data of SFT.'
        )

  def _evaluate(self, label: str) -> None:
    from jaxagent.recipes import stages

    stages.evaluate(
      self.context,
      self.policy,
      self.learner,
      label,
      lambda: self.evaluate(label),
    )
