"""Context of a run that its stages share: tasks, sandbox, grader, models."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import shlex
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from jaxagent.config import recipe
from jaxagent.config.agents import actions_of, agent_of
from jaxagent.config.tasks import (
  choose_tasks,
  data_source,
  folder,
  task_of,
  without_folder,
)
from jaxagent.envs import programs
from jaxagent.envs.execution import ExecutionOptions
from jaxagent.envs.grading import Grader
from jaxagent.envs.grading.grade_process import WorkerDied
from jaxagent.envs.snapshots import Snapshots
from jaxagent.envs.specs import interpreters, label_sources
from jaxagent.envs.specs.task_data import AS_PUBLISHED, SCALE_FILE
from jaxagent.envs.specs.task_yaml2 import REFERENCE
from jaxagent.envs.step_env import StepRules, TextModels
from jaxagent.envs.tasks import (
  PreparedTask,
  default_folder,
  prepare_task,
)
from jaxagent.errors import UserError
from jaxagent.metrics import MetricWriter, ProgressBar
from jaxagent.runtime import executions, text_models
from jaxagent.runtime.executions import CountedEnvironment
from jaxagent.runtime.stop import StopFlag
from jaxagent.sandbox import (
  BackendError,
  SandboxPool,
  TierError,
  gpu_devices,
)
from jaxagent.sandbox.recorded import RecordedPool
from jaxagent.sandbox.reuse import ReusingPool

if TYPE_CHECKING:
  from ml_collections import ConfigDict

  from jaxagent.types import TaskSpec

# Any of them runs or answers jobs.
AnyPool: TypeAlias = SandboxPool | RecordedPool | ReusingPool


@dataclasses.dataclass
class RunContext:
  """Everything the stages share. Closed by `open_context`."""

  config: Any
  work: pathlib.Path
  prepared: Mapping[str, PreparedTask]
  heldin: tuple[str, ...]
  heldout: tuple[str, ...]
  pool: AnyPool
  grader: Grader
  env: CountedEnvironment
  editor: Any
  expert: Any
  stop: StopFlag
  wall_s: dict[str, float] = dataclasses.field(default_factory=dict)

  @property
  def stand_ins(self) -> list[str]:
    """Names of the scripted models that take the place of language models."""
    models = recipe.find(self.config).stand_ins(self)
    return [m.name for m in models if m.is_stand_in]

  @property
  def standin_data(self) -> list[str]:
    """Names of published tasks whose data was made by code."""
    specs = [self.spec(task) for task in self.heldin + self.heldout]
    return [s.name for s in specs if s.version == 2 and s.is_standin]

  def metric_writer(
    self, stage: str = '', *, resume_step: int | None = None
  ) -> MetricWriter:
    """Returns the writer of a stage's metrics; '' is RL. See `MetricWriter`."""
    return MetricWriter(
      self.work / 'logs' / stage,
      resume_step=resume_step,
      board='tensorboard' in self.config.trackers,
    )

  def spec(self, task: str):
    return self.prepared[task].spec


def prepare_all(
  config: ConfigDict, work: pathlib.Path
) -> dict[str, PreparedTask]:
  """Prepares every chosen task, reusing what the work directory holds.

  As many at once as scripts are executed here at once; published data, which may
  be large, one after the other.
  """
  heldin, heldout = choose_tasks(config)
  names = heldin + heldout
  source = data_source(config)

  def prepare(name: str) -> PreparedTask:
    return prepare_task(task_of(config, name), work / 'tasks', source)

  prepared = {}
  at_once = min(config.sandbox.slots, os.cpu_count() or 1)
  threads = concurrent.futures.ThreadPoolExecutor(
    at_once if source.variant == 'standin' else 1, 'prepare'
  )
  with (
    contextlib.ExitStack() as stack,
    ProgressBar('tasks', len(names)) as progress,
  ):
    # After an error those that have not begun never do.
    stack.callback(threads.shutdown, cancel_futures=True)
    begun = [threads.submit(prepare, name) for name in names]
    for name, one in zip(names, begun):
      try:
        prepared[name] = one.result()
      except (ValueError, OSError) as error:
        raise UserError(str(error)) from error
      for note in prepared[name].notes:
        print(f'note: task {name}: {note}', file=sys.stderr)
      progress.update()
  if missing := without_folder(config):
    print(
      f'note: {len(missing)} tasks of the paper have no folder and are left out: '
      f'{", ".join(missing)}',
      file=sys.stderr,
    )
  if recipe.find(config).trains:
    _check_scales(prepared, config, work)
  return prepared


def _check_scales(
  prepared: Mapping[str, PreparedTask], config: ConfigDict, work: pathlib.Path
) -> None:
  """Raises UserError for tasks whose data was not measured, with the command for it."""
  lacking = {
    name: task.spec
    for name, task in prepared.items()
    if not task.spec.has_scale or task.spec.m_best_private is None
  }
  for name, spec in lacking.items():
    if spec.m_init is not None:
      raise UserError(
        f'task {name}: of its {config.tasks.data} data m_init is measured, and m_best '
        f'or m_best_private is not: {REFERENCE} gave no score there. Write both into '
        f'{prepared[name].public_dir.parent / SCALE_FILE}, or leave it out.'
      )
  if lacking:
    raise UserError(
      f'task {", ".join(lacking)}: m_init, m_best or m_best_private of its '
      f'{config.tasks.data} data is not measured; run `'
      f'{_measuring(lacking, config, work)}`, which keeps them beside the data of '
      'this run, or leave it out.'
    )


def _measuring(
  specs: Mapping[str, TaskSpec], config: ConfigDict, work: pathlib.Path
) -> str:
  """Returns the command that measures the data which a run has prepared."""
  source, words = data_source(config), ['python', '-m', 'jaxagent.tasks']
  if folder(config) != default_folder():
    words += ['--tasks_dir', str(folder(config))]
  words += ['--data_dir', str(work / 'tasks'), 'measure', *specs]
  if source.folder is not None:
    words += [f'--{source.variant}', str(source.folder)]
  if source.as_published:
    words.append(AS_PUBLISHED)
  if config.sandbox.gpus:
    words += ['--gpus', ','.join(config.sandbox.gpus)]
  if config.sandbox.timeout_s > max(s.limits.timeout_s for s in specs.values()):
    words += ['--timeout_s', f'{config.sandbox.timeout_s:g}']
  return shlex.join(words)


def _of_backend(box: ConfigDict) -> dict[str, Any]:
  """Returns the options that not every backend has."""
  if box.backend == 'docker':
    return {'image': box.docker_image}
  options: dict[str, Any] = {'gpu_devices': gpu_devices.files(box.gpus)}
  if box.backend == 'ray':
    options['address'] = box.ray_address
  return options


def _check_own_limits(
  prepared: Mapping[str, PreparedTask], step_timeout_s: float
) -> None:
  """Raises UserError where a task's own limit is not below that of a step."""
  for name, task in prepared.items():
    if task.spec.limits.timeout_s >= step_timeout_s:
      raise UserError(
        f'config.sandbox.step_timeout_s={step_timeout_s:g} must be above the '
        f"{task.spec.limits.timeout_s:g} s of task {name}'s own executions "
        '(config.sandbox.timeout_s=0).'
      )


def _check_programs(
  prepared: Mapping[str, PreparedTask], box: ConfigDict
) -> None:
  """Raises UserError where a step ends before a program's two jobs may.

  A slow program would pass its step's deadline, which is no fault of the policy's.
  """
  for name, task in prepared.items():
    if not programs.is_one(task.spec):
      continue
    second = task.spec.limits.timeout_s
    first = box.timeout_s or second
    if first + second >= box.step_timeout_s:
      raise UserError(
        f'config.sandbox.step_timeout_s={box.step_timeout_s:g} must be above '
        f'{first + second:g} s: {first:g} s of an execution '
        f'(config.sandbox.timeout_s) and {second:g} s in which a program of task '
        f'{name} is measured.'
      )


def _tell_what_is_for_models(context: RunContext) -> None:
  """Prints of which tasks the scripted editor, where it acts, can change no starter."""
  editor = context.editor
  acting = recipe.find(context.config).stand_ins(context)
  if not editor.is_stand_in or editor not in acting:
    return
  others = [
    name
    for name, task in context.prepared.items()
    if not editor.can_change(str(task.starter_files.get('train.py', '')))
  ]
  if others:
    print(
      f'note: the scripted editor can change nothing in {", ".join(others)}: only a '
      'model can act there (config.editor.kind=openai)',
      file=sys.stderr,
    )


def _open_pool(
  config: ConfigDict, work: pathlib.Path, prepared: Mapping[str, PreparedTask]
) -> AnyPool:
  """Starts the sandbox, from which work directory and labels are hidden."""
  box, given = config.sandbox, data_source(config).folder
  try:
    pool = SandboxPool(
      box.slots,
      backend=box.backend,
      min_tier=box.min_tier,
      zygote=box.zygote,
      gpus=box.gpus,
      cpu_level=box.cpu_level,
      work_dir=work / 'sandbox',
      interpreters=interpreters.of_all(t.spec for t in prepared.values()),
      hidden=(
        work,
        folder(config),
        *([given] if given is not None else []),  # it has answers, too
        *label_sources.folders(t.spec for t in prepared.values()),
      ),
      **_of_backend(box),
    )
  except (TierError, BackendError) as error:
    raise UserError(str(error)) from error
  if box.reuse == 'recent':
    return ReusingPool(pool)
  if not box.recorded:
    return pool
  try:
    return RecordedPool(
      pool,
      pathlib.Path(box.recorded),
      cpu_level=box.cpu_level,
      data=[f for t in prepared.values() for f in t.mounts.values()],
    )
  except (ValueError, OSError) as error:
    pool.close()
    raise UserError(f'config.sandbox.recorded: {error}') from error


def _open_machinery(
  config: ConfigDict,
  work: pathlib.Path,
  prepared: Mapping[str, PreparedTask],
  stack: contextlib.ExitStack,
) -> tuple[AnyPool, Grader]:
  """Starts sandbox and grader at the same time; `stack` closes both.

  Each waits for processes that import NumPy, pandas and scikit-learn.
  """
  with concurrent.futures.ThreadPoolExecutor(1) as starting:
    begun = starting.submit(Grader, prepared)

    def close() -> None:
      if begun.exception() is None:
        begun.result().close()

    stack.callback(close)  # also where the sandbox does not start
    pool = stack.enter_context(_open_pool(config, work, prepared))
    try:
      return pool, begun.result()
    except (ValueError, WorkerDied) as error:
      raise UserError(str(error)) from error


def _environment(
  config: ConfigDict,
  work: pathlib.Path,
  runner: tuple[Mapping[str, PreparedTask], AnyPool, Grader],
  models: TextModels,
  store: Snapshots,
) -> CountedEnvironment:
  """Makes the environment of `config.env`, which logs each execution."""
  options, box = config.env, config.sandbox
  return CountedEnvironment(
    *runner,
    models,
    StepRules(
      dialect=options.dialect,
      after_edit=options.after_edit,
      on_failure=options.on_failure,
      agent=agent_of(config),
      actions=actions_of(config),
      carry_mb=options.carry_mb,
    ),
    ExecutionOptions(
      timeout_s=box.timeout_s or None,
      memory_mb=box.memory_mb or None,
      threads=box.threads,
      zygote=box.zygote,
      step_timeout_s=box.step_timeout_s,
    ),
    store,
    log=work / executions.LOG,
  )


@contextlib.contextmanager
def open_context(
  config: ConfigDict, work: pathlib.Path, stop: StopFlag
) -> Iterator[RunContext]:
  """Prepares tasks, starts sandbox and grader, and closes both at the end."""
  heldin, heldout = choose_tasks(config)
  prepared = prepare_all(config, work)
  if not config.sandbox.timeout_s:
    _check_own_limits(prepared, config.sandbox.step_timeout_s)
  _check_programs(prepared, config.sandbox)
  with contextlib.ExitStack() as stack:
    pool, grader = _open_machinery(config, work, prepared, stack)
    try:
      store = Snapshots(work / 'snapshots.sqlite')
    except ValueError as error:
      raise UserError(str(error)) from error
    stack.callback(store.close)
    models = TextModels(
      text_models.make_editor(config, work),
      text_models.make_reader(config, work),
      text_models.make_helper(config),
    )
    runner = (prepared, pool, grader)
    env = _environment(config, work, runner, models, store)
    context = RunContext(
      config=config,
      work=work,
      prepared=prepared,
      heldin=heldin,
      heldout=heldout,
      pool=pool,
      grader=grader,
      env=env,
      editor=models.editor,
      expert=text_models.make_expert(config, work),
      stop=stop,
    )
    _tell_what_is_for_models(context)
    yield context
