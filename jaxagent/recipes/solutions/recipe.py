"""RL for MLE agents (papers 003 and 004), and AIDE's search around any model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from jaxagent.config import checks
from jaxagent.config.recipe import Recipe
from jaxagent.envs.solution import SYSTEM
from jaxagent.errors import UserError
from jaxagent.learner.config import OF_THE_BEST
from jaxagent.recipes.rules import EQUATION_6_RULES
from jaxagent.recipes.trained_policy import TrainedPolicy
from jaxagent.records import SolutionRecord
from jaxagent.rewards import mle
from jaxagent.types import Outcome

if TYPE_CHECKING:
  import pathlib

  from jaxagent.envs.solution import Task
  from jaxagent.recipes.solutions.prompts import PromptIds
  from jaxagent.recipes.solutions.workflow import SolutionWorkflow
  from jaxagent.runtime.context import RunContext
  from jaxagent.training import sft

_ONE_SOURCE = checks.related(
  'solution.programs',
  'sft.conversations',
  holds=lambda programs, file: not (programs and file),
  say='config.solution.programs={0} and config.sft.conversations={1!r} are both '
  "for SFT, which uses one of them; set the first to 0 or the second to ''.",
)


_NO_SECRETS = checks.related(
  'sandbox.recorded',
  'instrumenter.kind',
  holds=lambda file, kind: not file or kind in ('verified', 'none'),
  say='config.sandbox.recorded={0!r} answers programs that were executed before, and '
  'config.instrumenter.kind={1!r} puts a new secret into each: set '
  '--config.instrumenter.kind=verified, or none.',
)
_NO_SECRETS_TO_COMPARE = checks.related(
  'sandbox.reuse',
  'instrumenter.kind',
  holds=lambda reuse, kind: reuse == 'off' or kind in ('verified', 'none'),
  say='config.sandbox.reuse={0!r} compares programs, and config.instrumenter.kind={1!r} '
  'puts a new secret into each: set --config.instrumenter.kind=verified, or none, or '
  'sandbox.reuse=off.',
)


class _WholeSolutions(Recipe):
  """Programs that are written as a whole, run and graded once."""

  record_type = SolutionRecord
  every_heldout = False  # a policy is trained for its task
  strict_format = True

  @property
  def can_fine_tune(self) -> bool:
    return self.config.solution.programs > 0

  def system_message(self) -> str:
    return SYSTEM if self.config.rollout.prompt_style == 'full' else ''

  def stand_ins(self, context: RunContext) -> Sequence[Any]:
    from jaxagent.stand_ins.programmer import ScriptedProgrammer

    return (ScriptedProgrammer,) if self.config.solution.programs else ()


class Solutions(_WholeSolutions, TrainedPolicy):
  """Duration-aware RL on whole solutions, with partial credit and improvement."""

  name = 'solutions'
  stages = ('all', 'sft', 'evaluate')
  rules: ClassVar[tuple[checks.Rule, ...]] = (
    *(
      checks.related(
        key,
        holds=lambda value: not value,
        say=f'config.{key}={{0!r}} is not for config.recipe={{recipe!r}}, which trains '
        'on config.tasks.heldin; leave it out.',
      )
      for key in ('rl.tasks', 'rl.states')
    ),
    *EQUATION_6_RULES,
    checks.related(
      'eval.k',
      'solution.samples',
      holds=lambda k, samples: k <= samples,
      say='config.eval.k={0} needs as many solutions of a task, but '
      'config.solution.samples={1}; lower k or raise the samples.',
    ),
    checks.related(
      'solution.programs',
      'model.path',
      'sft.conversations',
      holds=lambda programs, path, file: programs or path or file,
      say='config.solution.programs={0} leaves nothing to learn programs from, and '
      'config.model.path={1!r} names no model that can write them; give one of '
      'the two, or config.sft.conversations.',
      stage='run',  # the paper's variant is planned without weights
    ),
    _ONE_SOURCE,
    _NO_SECRETS,
    _NO_SECRETS_TO_COMPARE,
    checks.related(
      'rl.estimator',
      'solution.scale',
      'solution.failure',
      'rl.window',
      holds=lambda name, scale, failure, window: (
        not (name in OF_THE_BEST or (name == 'gae' and window))
        or (scale == 'task' and failure >= -1)
      ),
      say='config.rl.estimator={0!r} with config.rl.window={3} needs failures on the '
      "task's scale, for a failure far below all scores would decide each comparison: "
      'give --config.solution.scale=task --config.solution.failure=-1, not {1!r} and '
      '{2}.',
    ),
  )
  _pairs: Sequence[tuple[Task, str]] = ()
  _prompt_ids: PromptIds
  _workflow: SolutionWorkflow

  def prepare(self) -> None:
    from jaxagent.recipes.solutions import prompts

    self._pairs = prompts.written(self.context)

  @property
  def fine_tunes(self) -> bool:
    return bool(self._pairs)

  @property
  def validates(self) -> bool:
    return True

  def texts(self) -> Iterable[str]:
    from jaxagent.recipes import sft_data
    from jaxagent.recipes.solutions import prompts

    if self.imported:
      return sft_data.texts(self.imported)
    return prompts.texts(self.context, self._pairs)

  def rows(self) -> list[sft.Row]:
    from jaxagent.recipes.solutions import prompts

    return prompts.rows(self._pairs, self._prompt_ids, self.policy)

  def check_policy(self) -> None:
    from jaxagent.recipes.solutions.prompts import PromptIds
    from jaxagent.recipes.solutions.workflow import make_workflow

    self._prompt_ids = PromptIds(self.context, self.policy)
    self._workflow = make_workflow(self.context, self.policy, self._prompt_ids)

  def workflow(self) -> SolutionWorkflow:
    return self._workflow

  def evaluate(self, label: str) -> None:
    from jaxagent.recipes.solutions import evaluate

    evaluate.run(self.context, self.workflow(), label)

  def finish(self, labels: Sequence[str]) -> None:
    """Writes summary, report and the tree of solutions."""
    from jaxagent.metrics import read_records
    from jaxagent.recipes import results, stages
    from jaxagent.recipes.solutions import evaluate, operators
    from jaxagent.report import write_tree
    from jaxagent.runtime import kept

    work = self.context.work
    tables: dict[str, Any] = {
      label: evaluate.table(
        kept.evaluated(work, label), higher_is_better(self.context)
      )
      for label in labels
      if label in self.config.eval.policies
    }
    how = {
      'start': 'scratch and improved',
      'trajectories_per_task': 2 * self.config.solution.samples,
      'max_steps': 1,
    }
    traces = results.read_traces(work / 'rl' / 'traces')
    extra = {'solutions': tables, 'operators': operators.table(traces)}
    stages.finish(self.context, self.starts, labels, extra, how)
    metrics = read_records(work / 'logs' / 'metrics.jsonl')
    page = write_tree(work / 'solutions.html', traces, metrics=metrics)
    print(f'solutions    {page}')

  def run(self, context: RunContext, stack: contextlib.ExitStack) -> None:
    _check_scale(context)
    _warn_of_luck(context)
    super().run(context, stack)

  def collected_plan(self, tasks: int) -> str:
    programs = self.config.solution.programs
    return f'{programs} programs by script' if programs else 'none'

  def sft_plan(self) -> str:
    if not (self.config.sft.conversations or self.config.solution.programs):
      return 'none'
    return super().sft_plan()

  def batch_unit(self) -> str:
    return 'solutions'

  def evaluated_plan(self, tasks: int) -> str:
    n = self.config.solution.samples * tasks
    return f'{n} solutions from scratch, {n} improved'


class TreeSearch(_WholeSolutions):
  """AIDE's search around a prompted model, or around a policy that was trained."""

  name = 'tree_search'
  rules = (*EQUATION_6_RULES, _ONE_SOURCE, _NO_SECRETS, _NO_SECRETS_TO_COMPARE)

  @property
  def _is_prompted(self) -> bool:
    return self.config.writer.kind == 'openai'

  def check_work_dir(self, work: pathlib.Path) -> None:
    from jaxagent.training import device

    if not self._is_prompted:
      device.check_base(self.config, work)
      device.check_trained(work)

  def plan(self, heldin: Sequence[str], heldout: Sequence[str]) -> list[str]:
    writer, search = self.config.writer, self.config.search
    tasks = len(heldin) + len(heldout)
    author = "the work directory's policy"
    if self._is_prompted:
      author = f'{writer.model or "a model"} behind an endpoint'
    runs, n = search.runs * tasks, writer.samples * tasks
    samples = f'{n} solutions from scratch, {n} improved' if n else 'none'
    return [
      f'2 samples    {samples}',
      f'3 search     {runs} searches of {search.steps} programs each '
      f'({search.drafts} drafts), {runs * search.steps} programs by {author}',
    ]

  def run(self, context: RunContext, stack: contextlib.ExitStack) -> None:
    _check_scale(context)
    if self._is_prompted:
      self._around_model(context)
    else:
      self._around_policy(context, stack)

  def _around_model(self, context: RunContext) -> None:
    from jaxagent.recipes.solutions.prompts import Prompts
    from jaxagent.recipes.solutions.workflow import make_workflow
    from jaxagent.runtime.text_models import ProgramModel

    writer = ProgramModel(self.config, context.work)
    workflow = make_workflow(context, writer, Prompts(context).text, 'agent')
    name = (self.config.writer.model or 'agent').replace('/', '_')
    if self.config.writer.samples:
      _sample(context, workflow, f'samples_{name}')
    _search(context, workflow, name)

  def _around_policy(
    self, context: RunContext, stack: contextlib.ExitStack
  ) -> None:
    from jaxagent.recipes import sft_data, stages
    from jaxagent.training import device

    trained = Solutions(self.config)
    trained.context, trained.imported = context, sft_data.imported(self.config)
    trained.prepare()
    trained.fine_tune(stack)
    learner, engine = trained.learner, trained.policy.engine
    device.restore_rl(context, learner)
    engine.update_weights(learner.policy_params, engine.version)
    stages.set_aside_older(context.work, 'search_policy', learner.updates)
    workflow = trained.workflow()
    _search(context, workflow, workflow.role)


def _check_scale(context: RunContext) -> None:
  """Raises UserError where `solution.scale` cannot be used for a task."""
  for task in context.heldin + context.heldout:
    spec = context.spec(task)
    try:
      mle.mle_reward(
        Outcome.OK,
        score=spec.m_best or 0.0,
        scale=context.config.solution.scale,
        start=spec.m_init,
        best=spec.m_best,
      )
    except ValueError as error:
      raise UserError(
        f'config.solution.scale={context.config.solution.scale!r}: task {task}: '
        f'{error} Run `python -m jaxagent.tasks prepare {task}`, or choose '
        'bounded.'
      ) from error


def _warn_of_luck(context: RunContext) -> None:
  """Names the tasks on which the best by validation are known to be the luckiest."""
  if context.config.rl.estimator != 'best_of':
    return
  for task in context.heldin:
    found = context.spec(task).agreement
    if found is not None and found <= 0:
      print(
        f'warning: task {task}: validation and private scores of its best programs '
        f'disagree (rank correlation {found:.2f}): rl.estimator=best_of may raise the '
        'validation score of the chosen and lower its private score (docs/best_of.md).'
      )


def _sample(
  context: RunContext, workflow: SolutionWorkflow, label: str
) -> None:
  """Samples a prompted model; writes the same table as for trained policies."""
  from jaxagent.recipes.solutions import evaluate
  from jaxagent.recipes.stages import timed
  from jaxagent.recipes.starts import write_json

  with timed(context, 'samples'):
    records = evaluate.run(
      context, workflow, label, samples=context.config.writer.samples
    )
  path = context.work / 'samples.json'
  write_json(path, evaluate.table(records, higher_is_better(context)))
  print(f'samples      {path}')


def _search(
  context: RunContext, workflow: SolutionWorkflow, label: str
) -> None:
  """Runs the searches; writes and prints their table."""
  from jaxagent.recipes.solutions import tree_search
  from jaxagent.recipes.stages import timed
  from jaxagent.recipes.starts import write_json

  with timed(context, 'search'):
    records = tree_search.run(context, workflow, label)
  found = tree_search.table(records, higher_is_better(context))
  path = context.work / 'search.json'
  write_json(path, found)
  for task, row in found.items():
    print(
      f'{task:16} {row["n"]} searches, valid {row["valid"]:.2f}, private '
      f'score: mean {_text(row["mean"])}, best {_text(row["best"])}'
    )
  print(f'table        {path}')


def _text(value: float | None) -> str:
  return '-' if value is None else f'{value:.4g}'


def higher_is_better(context: RunContext) -> Mapping[str, bool]:
  """Returns task -> whether a higher score is better."""
  tasks = context.heldin + context.heldout
  return {task: context.spec(task).higher_is_better for task in tasks}
