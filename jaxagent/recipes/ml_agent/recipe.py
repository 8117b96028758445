"""Step-wise RL of ML-Agent and its baseline, from experts to report (paper 000)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from jaxagent import types
from jaxagent.config import checks
from jaxagent.config.agents import prompter_of
from jaxagent.recipes.trained_policy import TrainedPolicy
from jaxagent.records import Collected, StepRecord

if TYPE_CHECKING:
  from ml_collections import ConfigDict

  from jaxagent.recipes.ml_agent.state_pool import StatePool
  from jaxagent.training import sft
  from jaxagent.training.workflow import RolloutWorkflow


def _edits_are_scored(config: ConfigDict) -> str:
  if config.env.after_edit != 'nothing' or config.stage == 'evaluate':
    return ''
  return (
    f'config.env.after_edit={config.env.after_edit!r} gives an edit no score, so '
    'that each would have the reward of a failure; '
    f'config.recipe={config.recipe!r} needs measure or execute.'
  )


_RULES = (
  checks.related(
    'rl.window',
    'rl.estimator',
    'rl.value_warmup_epochs',
    holds=lambda window, name, epochs: (
      not (window and name == 'gae' and epochs)
    ),
    say='config.rl.window={0} with config.rl.estimator={1!r} pays the critic what a '
    'score adds to the best, and config.rl.value_warmup_epochs={2} warms it up on '
    'plain rewards; set the last to 0, or the first.',
  ),
  checks.Rule(('env.after_edit', 'stage'), _edits_are_scored),
  checks.related(
    'collect.time_limit_s',
    'sandbox.timeout_s',
    holds=lambda whole, one: whole >= one,
    say='config.collect.time_limit_s={0} of a trajectory must be at least '
    'config.sandbox.timeout_s={1} of one execution; raise the first or lower '
    'the second.',
  ),
  checks.related(
    'sft.epochs',
    'model.path',
    'stage',
    holds=lambda epochs, path, stage: epochs or path or stage != 'sft',
    say='config.sft.epochs={0} trains nothing, and config.model.path={1!r} names no '
    'trained model; give one of the two.',
    stage='run',  # RL from the model as it is: paper 000, figure 5
  ),
)


class _MlAgent(TrainedPolicy):
  """A policy that is shown states of an agent and answers with one action."""

  record_type = StepRecord
  collects = True
  rules: ClassVar[tuple[checks.Rule, ...]] = _RULES
  records: Sequence[Collected]

  def shortest_prompt(self, spec: types.TaskSpec) -> str:
    empty = types.State('', spec.name, {}, None, None)
    return prompter_of(self.config).text(empty, spec)

  @property
  def validates(self) -> bool:
    return True

  def prepare(self) -> None:
    from jaxagent.recipes import scoring
    from jaxagent.recipes.ml_agent import collect
    from jaxagent.recipes.stages import timed

    # Before long work: a task without a scale ends here.
    scoring.scales(self.context, self.starts)
    with timed(self.context, 'collect'):
      self.records = collect.run(self.context, self.starts)

  def texts(self) -> Iterable[str]:
    from jaxagent.recipes import sft_data

    return itertools.chain(
      sft_data.step_texts(self.context, self.records),
      sft_data.texts(self.imported),
    )

  def check_tokenizer(self, tokenizer: Any) -> None:
    from jaxagent.recipes.ml_agent import steps

    steps.check_prompts(self.context, tokenizer, self.starts)

  def rows(self) -> list[sft.Row]:
    from jaxagent.recipes import sft_data

    return sft_data.rows_of_steps(self.context, self.records, self.policy)

  def before_rl(self) -> None:
    from jaxagent.recipes.ml_agent import value_warmup
    from jaxagent.recipes.stages import timed
    from jaxagent.training import device

    if not self.learner.config.uses_value or device.has_rl(self.context.work):
      return
    with timed(self.context, 'value_warmup'):
      value_warmup.run(
        self.context,
        self.learner,
        self.policy,
        self.warmup_records(),
        horizon=self.horizon,
      )

  @property
  def horizon(self) -> int:
    """Most steps of a trajectory of RL."""
    return 1

  def warmup_records(self) -> Sequence[Collected]:
    """Returns the steps that the critic is warmed up on."""
    return self.records

  def evaluate(self, label: str) -> None:
    from jaxagent.recipes.ml_agent import evaluate

    evaluate.evaluate_policy(self.context, self.policy, label, self.starts)

  def collected_plan(self, tasks: int) -> str:
    collect = self.config.collect
    return (
      f'{collect.trajectories_per_task * tasks} trajectories of up to '
      f'{collect.max_steps} steps ({self.config.expert.kind} expert, '
      f'{self.config.editor.kind} editor)'
    )


class Stepwise(_MlAgent):
  """Step-wise RL (section 4.2): one action from one of the experts' states."""

  name = 'stepwise'
  _states: StatePool | None = None

  def prepare(self) -> None:
    from jaxagent.recipes.ml_agent import state_pool

    super().prepare()
    if self.runs_rl:
      self._states = state_pool.make(self.context, self.records)

  def workflow(self) -> RolloutWorkflow:
    from jaxagent.recipes.ml_agent.stepwise import StepwiseWorkflow

    assert self._states is not None  # RL runs: `prepare` has made it
    names = self.config.rl.tasks or self.context.heldin
    return StepwiseWorkflow(
      self.context,
      self._states,
      self.policy,
      starts={task: self.starts[task].state for task in names},
    )

  def warmup_records(self) -> Sequence[Collected]:
    assert self._states is not None
    return self._states.of(self.records)

  def batch_unit(self) -> str:
    return 'steps'


class Episodewise(_MlAgent):
  """Episode-wise RL (section 5.3 and figure 4): trajectories from the starters."""

  name = 'episodewise'
  rules = (
    *_RULES,
    checks.related(
      'rl.states',
      holds=lambda states: not states,
      say='config.rl.states={0} is for step-wise RL; whole trajectories '
      '(config.recipe={recipe!r}) start from the starters. Set it to 0.',
    ),
    checks.related(
      'rl.gamma',
      holds=lambda gamma: gamma == 1,
      say='config.rl.gamma={0} discounts the tokens of a row only, and in '
      'config.recipe={recipe!r} each turn of a trajectory is a row of its own; set it '
      'to 1.',
    ),
  )

  def workflow(self) -> RolloutWorkflow:
    from jaxagent.recipes.ml_agent.episodewise import EpisodewiseWorkflow

    names = self.config.rl.tasks or self.context.heldin
    starts = {task: self.starts[task] for task in names}
    return EpisodewiseWorkflow(self.context, starts, self.policy)

  @property
  def horizon(self) -> int:
    return self.config.episode.max_steps

  def batch_unit(self) -> str:
    return f'trajectories of up to {self.config.episode.max_steps} steps'
