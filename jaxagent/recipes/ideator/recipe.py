"""MLE-Ideator (paper 001): an Ideator trained by GRPO on what its ideas achieve."""

from __future__ import annotations

import pathlib
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from jaxagent.config import checks, endpoints
from jaxagent.config.tasks import choose_tasks, task_of
from jaxagent.errors import UserError
from jaxagent.options import shown
from jaxagent.recipes.ideator.config import (
  OPEN,
  ClassifierOptions,
  IdeatorOptions,
  ImplementerOptions,
  PoolOptions,
)
from jaxagent.recipes.ideator.record import IdeaRecord
from jaxagent.recipes.rules import EQUATION_6_RULES
from jaxagent.recipes.trained_policy import TrainedPolicy

if TYPE_CHECKING:
  from ml_collections import ConfigDict

  from jaxagent.envs.implementer_state import ImplementerState
  from jaxagent.recipes.ideator.pool import Pool
  from jaxagent.records import Evaluated
  from jaxagent.runtime.context import RunContext
  from jaxagent.training import sft
  from jaxagent.training.workflow import RolloutWorkflow
  from jaxagent.types import TaskSpec


def _fills_a_batch(config: ConfigDict) -> str:
  heldin, _ = choose_tasks(config)
  states = config.pool.train_per_task * len(heldin)
  if states * config.rl.group_size >= config.rl.batch_size:
    return ''
  return (
    f'config.pool.train_per_task={config.pool.train_per_task} on {len(heldin)} '
    f'tasks with config.rl.group_size={config.rl.group_size} samples each do not '
    f'fill config.rl.batch_size={config.rl.batch_size}; raise the first, or lower '
    'the last.'
  )


def _template(config: ConfigDict) -> str:
  from jaxagent.recipes.ideator.prompt import read_template

  if not config.ideator.prompt:
    return ''
  try:
    read_template(config.ideator.prompt)
  except (ValueError, OSError) as error:
    return f'config.ideator.prompt: {checks.line(error)}'
  return ''


def _extra(config: ConfigDict) -> str:
  if 'openai' in config.ideator.arms:
    return ''
  return endpoints.extra_rule('ideator').check(config)


def _boards(config: ConfigDict) -> str:
  from jaxagent.recipes.ideator.figures import board_file, board_in

  if not config.ideator.boards:
    return ''
  if not pathlib.Path(config.ideator.boards).expanduser().is_dir():
    return (
      f'config.ideator.boards={config.ideator.boards!r} is no folder; give that of '
      "the leaderboards TASK.csv, or ''."
    )
  for names in choose_tasks(config):
    for task in names:
      spec = task_of(config, task)
      if (path := board_file(config, spec)) is None:
        continue
      try:
        board_in(path, spec)
      except ValueError as error:
        return f'config.ideator.boards: {checks.line(error)}'
  return ''


def _augment(config: ConfigDict) -> str:
  if not config.ideator.augment or config.rollout.prompt_style == 'compact':
    return ''
  return (
    f'config.ideator.augment={config.ideator.augment} shows states as of another kind '
    "of task, which config.rollout.prompt_style='full' cannot: its prompts hold the "
    "task's own text; set it to 0, or the style to 'compact'."
  )


class Ideator(TrainedPolicy):
  """An Implementer asks, the policy answers with one idea, execution rewards it."""

  name = 'ideator'
  record_type = IdeaRecord
  strict_format = True
  sections = {
    'implementer': ImplementerOptions,
    'ideator': IdeatorOptions,
    'classifier': ClassifierOptions,
    'pool': PoolOptions,
  }
  metric_names: ClassVar[dict[str, str]] = {
    'ideator/mixed_groups': 'Share of groups with different rewards, which teach GRPO.',
    'ideator/distinct_ideas': 'Share of different ACTIONs among the ideas of a batch.',
    'ideator/type_entropy': 'Entropy of the types of a batch of ideas, in nats.',
    'ideator/best_of_8': 'Expected best reward of 8 ideas to a state.',
    'ideator/mean_of_8': 'Mean reward of the same groups of 8 or more.',
    'ideator/best_is_not_last': 'Share of ideas whose best submission is not the last.',
    'ideator/arm/': 'Figure of an arm and split of the evaluation, see docs/ideator.md.',
    'ideator/result/': 'Share of ideas that ended so: improved, no_op, format_error, ...',
  }
  rules: ClassVar[tuple[checks.Rule, ...]] = (
    *EQUATION_6_RULES,
    checks.Rule(
      ('pool.train_per_task', 'rl.batch_size', 'rl.group_size'), _fills_a_batch
    ),
    checks.Rule(('ideator.prompt',), _template, 'run'),
    checks.Rule(('ideator.augment', 'rollout.prompt_style'), _augment),
    checks.Rule(
      ('ideator.boards', 'tasks.heldin', 'tasks.heldout'), _boards, 'run'
    ),
    *map(endpoints.extra_rule, ('implementer', 'classifier')),
    checks.Rule(('ideator.extra', 'ideator.kind', 'ideator.arms'), _extra),
  )
  _pool: Pool

  def stand_ins(self, context: RunContext) -> Sequence[Any]:
    from jaxagent.recipes.ideator import roles
    from jaxagent.stand_ins.implementer import HABITS, ScriptedImplementer

    found: list[Any] = []
    own = self.config.implementer
    found += [
      ScriptedImplementer(HABITS[kind], name=f'{kind}_implementer')
      for kind in (own.kind, *own.also)
      if kind in HABITS
    ]
    kinds = {self.config.ideator.kind, *self.config.ideator.arms}
    found += [
      roles.teacher(context, kind)
      for kind in sorted(kinds & {'scripted', 'blind'})
    ]
    return found

  def prepare(self) -> None:
    from jaxagent.recipes import scoring
    from jaxagent.recipes.ideator import collect, figures
    from jaxagent.recipes.stages import timed

    scoring.scales(self.context, self.starts)
    try:  # before the hours that the arms are measured after
      figures.boards_of(self.context, self.starts)
    except ValueError as error:
      raise UserError(
        f'{error} Give a weaker starter, or measure the task anew: '
        'python -m jaxagent.tasks measure TASK.'
      ) from error
    with timed(self.context, 'collect'):
      self._pool = collect.run(self.context, self.starts)
    print(
      f'pool: {len(self._pool.train)} states to train on, '
      f'{len(self._pool.valid)} to validate on'
    )

  @property
  def can_fine_tune(self) -> bool:
    return self.config.ideator.answers > 0

  @property
  def fine_tunes(self) -> bool:
    return self.can_fine_tune

  def texts(self) -> Iterable[str]:
    from jaxagent.recipes import sft_data
    from jaxagent.recipes.ideator.workflow import Prompts

    prompts = Prompts(self.context)
    for item in self._pool.train:
      yield prompts.text(item.state)
    for state, spec, answer in self._answers():
      if spec != self.context.spec(state.task):
        yield prompts.text(state, spec=spec)
      yield answer
    yield from sft_data.texts(self.imported)

  def _answers(self) -> Iterable[tuple[ImplementerState, TaskSpec, str]]:
    """Yields states, what is said of their task, and answers of the teacher.

    None is executed. The share `ideator.augment` answers the state as of another task:
    the pool has too few tasks to tell what depends on a task's kind from what is of
    that task alone.
    """
    from jaxagent.recipes.ideator import roles
    from jaxagent.recipes.ideator.parser import Idea, write_idea
    from jaxagent.stand_ins.ideator import as_another_task
    from jaxagent.training.policy import seed_of

    teacher, own = roles.teacher(self.context), self.config.ideator
    others = round(own.answers * own.augment)
    for item in self._pool.train if own.answers else ():
      rng = random.Random(seed_of(self.config.seed, 'teacher', item.key))
      state, spec = item.state, self.context.spec(item.state.task)
      for items in teacher.answers(state, spec, rng, own.answers - others):
        yield state, spec, write_idea(Idea(*items))
      for _ in range(others):
        other = as_another_task(state, spec, rng)
        yield *other, write_idea(Idea(*teacher.items(*other, rng)))

  def rows(self) -> list[sft.Row]:
    from jaxagent.recipes.ideator.workflow import Prompts
    from jaxagent.training import sft

    prompts = Prompts(self.context)
    made = sft.rows(
      (
        (prompts.ids(state, self.policy, spec), answer)
        for state, spec, answer in self._answers()
      ),
      self.policy,
    )
    if not made:
      raise UserError(
        f'config.rollout.max_new_tokens={self.policy.sampling.max_new_tokens} is '
        'too short for every answer of the teacher; raise it.'
      )
    return made

  def workflow(self) -> RolloutWorkflow:
    from jaxagent.recipes.ideator.workflow import IdeaWorkflow

    return IdeaWorkflow(self.context, self._pool, self.policy)

  @property
  def validates(self) -> bool:
    return self.config.pool.valid_per_task > 0

  def evaluate(self, label: str) -> None:
    from jaxagent.recipes import stages
    from jaxagent.recipes.ideator.evaluate import ArmEvaluation, label_of

    for implementer in ('', *self.config.implementer.also):
      if implementer:
        stages.set_aside_older(
          self.context.work, label_of(label, implementer), self.learner.updates
        )
      ArmEvaluation(
        self.context, label, self.starts, self.policy, implementer
      ).run()

  def finish(self, labels: Sequence[str]) -> None:
    """Evaluates the arms without a policy; writes summary and report."""
    from jaxagent.recipes import stages
    from jaxagent.recipes.ideator import dialogue, figures

    context = self.context
    evaluated = self._evaluated(labels)
    extra = self.extra(evaluated)
    table = extra['ideator']
    how = {'max_steps': self.config.implementer.max_steps}
    stages.finish(context, self.starts, labels, extra, how)
    with context.metric_writer('arms') as writer:
      writer.write(self.learner.updates, figures.logged(table))
    page = dialogue.write(
      context.work / 'conversations.html',
      evaluated,
      {task: context.spec(task).higher_is_better for task in self.starts},
      table,
    )
    print(f'conversations {page}')
    _say(table)

  def extra(self, evaluated: Mapping[str, Sequence[Evaluated]]) -> dict:
    """Returns what `summary.json` has of every arm, not of the policies alone."""
    from jaxagent.recipes import whole_test
    from jaxagent.recipes.ideator import figures

    found = {'ideator': figures.arms(self.context, self.starts, evaluated)}
    if whole := whole_test.figures(self.context, self.starts, evaluated):
      found['whole_test'] = whole
    return found

  def _evaluated(self, labels: Sequence[str]) -> dict[str, list[Evaluated]]:
    """Returns label -> runs of every arm; makes those of arms without a policy."""
    from jaxagent.recipes import stages
    from jaxagent.recipes.ideator.evaluate import ArmEvaluation, label_of
    from jaxagent.runtime import kept

    context, found = self.context, {}
    for implementer in ('', *self.config.implementer.also):
      for arm in self.config.ideator.arms:
        name = label_of(arm, implementer)
        with stages.timed(context, f'evaluate_{name}'):
          evaluation = ArmEvaluation(
            context, arm, self.starts, implementer=implementer
          )
          found[name] = evaluation.run()
      for label in labels:
        if label in self.config.eval.policies:
          name = label_of(label, implementer)
          found[name] = kept.evaluated(context.work, name)
    return found

  def plan(self, heldin: Sequence[str], heldout: Sequence[str]) -> list[str]:
    own, rl = self.config.ideator, self.config.rl
    lines = super().plan(heldin, heldout)
    if self.runs_rl:
      at = next(n for n, line in enumerate(lines, 1) if line[2:5] == 'rl ')
      lines[at:at] = [
        f'             {rl.batch_size // rl.group_size} states x {rl.group_size} '
        f'ideas, loss {rl.aggregation}, checkpoint every {rl.checkpoint_every}; trace '
        f'of {own.max_trace_tokens} tokens, compared with the {own.before} score, '
        f'margin {own.margin:g}',
        '             left open by the paper: '
        + ', '.join(
          f'{key}={shown(checks.get(self.config, key))}' for key in OPEN
        ),
      ]
    return lines

  def collected_plan(self, tasks: int) -> str:
    pool, own = self.config.pool, self.config
    return (
      f'{pool.runs_per_task * tasks} runs of up to {own.implementer.max_steps} '
      f'messages ({own.implementer.kind} Implementer, {own.ideator.kind} Ideator), '
      f'{pool.train_per_task * tasks} + {pool.valid_per_task * tasks} states'
    )

  def sft_plan(self) -> str:
    if not (self.config.sft.conversations or self.config.ideator.answers):
      return 'none'
    return super().sft_plan()

  def batch_unit(self) -> str:
    return 'ideas'

  def evaluated_plan(self, tasks: int) -> str:
    runs = self.config.eval.trajectories_per_task * tasks
    arms = ', '.join(self.config.ideator.arms) or 'no other'
    return f'{runs} runs by each of {arms}, and as many'


def _say(table: Any) -> None:
  print(f'\n{"":10} {"":8} {"Avg@3":>7} {"Best@3":>7} {"improve":>8}')
  for label, splits in table.items():
    for split, row in splits.items():
      cells = (row['avg_at_3'], row['best_at_3'])
      shown = ' '.join(
        f'{"-" if c is None else format(c, ".1f"):>7}' for c in cells
      )
      share = '-' if row['improve'] is None else f'{row["improve"]:.2f}'
      print(f'{label:10} {split:8} {shown} {share:>8}')
