"""One run over several processes: process 0 leads, the others follow its learner.

Process 0 does the whole job: tasks, experts, sandboxes, engine, scheduler, files. A
mesh over several processes needs all of them in every program of the learner, so
process 0 broadcasts each call of its learner before it makes the call, and every other
process makes the same call of its own learner.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx

from jaxagent import models
from jaxagent.checkpoint import CheckpointManager, Restored
from jaxagent.devices import accelerator, presence, processes, sharding
from jaxagent.errors import STOPPED, Interrupted, ProcessLost, UserError
from jaxagent.learner import Learner, LearnerConfig, offload, packing, weights
from jaxagent.models import attention, hf, identity, lora

_FAREWELL_S = 120.0  # in which a process that ends closes what it has open
_FAILED_S = 20.0  # likewise, after an error; others may hang in a collective
# Messages in place of a call: statuses that processes end with.
_ENDED, _STOPPED = 0, STOPPED
# Methods of the learner that run programs, or change what decides about them.
_TOLD = (
  'start_sft',
  'sft_step',
  'start_rl',
  'rl_update',
  'value_update',
  'end_value_warmup',
  'logprobs',
  'load_host_state',
)


@dataclasses.dataclass(frozen=True)
class Plan:
  """The arguments that every process builds its learner from.

  path: folder of a Hugging Face model to begin with, '' for random weights;
    critic_path: of the value model's, '' for a copy of the policy; adapter_path: of
    the adapters to begin with, '' for fresh ones. With several processes each of them
    reads it.
  """

  model: models.ModelConfig
  options: LearnerConfig
  mesh: Mapping[str, int]
  seed: int
  pad_id: int
  path: str = ''
  critic_path: str = ''
  adapter_path: str = ''


def run_options(model: models.ModelConfig) -> dict[str, Any]:
  """Returns the options of running a model, which a Hugging Face folder lacks."""
  return {
    'dtype': model.dtype,
    'scan_layers': model.scan_layers,
    'remat': model.remat,
    'attention': model.attention,
  }


def build(plan: Plan) -> Learner:
  """Builds the learner. Raises ValueError where a folder, mesh or kernel does not fit.

  Weights go from their files to the devices that keep them, one after another.
  """
  mesh, model = sharding.make_mesh(plan.mesh), plan.model
  # Before anything is loaded, which takes minutes.
  sharding.check_model(model, mesh)
  attention.choose(
    model.attention, model.dtype, model.head_dim, device=mesh.devices.flat[0]
  )
  packing.check(model, plan.options, mesh)
  offload.check(plan.options.offload, mesh)
  params = critic = None
  if plan.path:
    params = _read_policy(plan, sharding.parameter_place(mesh))
  if plan.critic_path and plan.options.uses_value:
    options = run_options(model)
    critic = (
      models.ModelConfig.from_hf(plan.critic_path, **options),
      functools.partial(_read_critic, plan.critic_path, options),
    )
  return Learner(
    model,
    plan.options,
    mesh=mesh,
    seed=plan.seed,
    policy_params=params,
    critic=critic,
    pad_id=plan.pad_id,
  )


def _read_policy(plan: Plan, place: hf.ShardingOf) -> Any:
  """Reads the weights to begin with, and adapters beside them where they are trained.

  Raises ValueError where the adapters do not fit, or were trained on another base.
  """
  model, options = plan.model, run_options(plan.model)
  if plan.options.full_sft or not model.lora_rank:
    return hf.load_hf(plan.path, sharding_of=place, **options)[-1]
  options['param_dtype'] = model.param_dtype
  base = hf.load_hf(plan.path, sharding_of=place, **options)[-1]
  if not plan.adapter_path:
    return lora.add_lora(model, base, seed=plan.seed)[2]
  recorded = lora.check_peft(plan.adapter_path, model).base
  if recorded and recorded != (
    found := identity.digest(model, weights.by_path(base))
  ):
    raise ValueError(
      f'config.model.lora.path={plan.adapter_path!r} has adapters of another base '
      f'(digest {recorded}) than config.model.path={plan.path!r} ({found}); give the '
      'model that they were trained on.'
    )
  return lora.load_peft(plan.adapter_path, model, base)[2]


def _read_critic(
  folder: str, options: Mapping[str, Any], place: hf.ShardingOf
) -> Any:
  """Reads the trunk's weights, each time that RL begins; UserError if gone."""
  try:
    return hf.load_hf(folder, sharding_of=place, head=False, **options)[-1]
  except (OSError, ValueError) as error:
    raise UserError(f'config.rl.critic_path={folder!r}: {error}') from error


def make_learner(plan: Plan) -> Learner | Leader:
  """Returns a learner of this process, or one that all processes share."""
  if jax.process_count() == 1:
    return build(plan)
  processes.tell((_Follower.build, (plan,), {}))
  return Leader(build(plan))


class Leader:
  """Process 0's learner, as `Learner`; its calls are made by every process."""

  def __init__(self, learner: Learner):
    self._learner = learner
    self._base: tuple[str, Any] = ('', None)  # digest, and its parameters here

  def __getattr__(self, name: str):
    if name in _TOLD:
      return functools.partial(self._all, name)
    return getattr(self._learner, name)

  def _all(self, method: str, /, *args, **kwargs):
    presence.doing(method)
    processes.tell((_Follower.call, (method, *args), kwargs))
    return getattr(self._learner, method)(*args, **kwargs)

  @property
  def policy_params(self) -> Any:
    """The policy on this process's own devices, for its engine.

    A base below adapters is fetched once.
    """
    digest = self._learner.adapted_base
    has_base = bool(digest) and digest == self._base[0]
    processes.tell((_Follower.fetch, (has_base,), {}))
    fetched = sharding.fetch(_sampled(self._learner, has_base))
    own = jax.local_devices()
    mesh = sharding.make_mesh({'fsdp': len(own)}, own)
    place = sharding.parameter_shardings(fetched, mesh)
    params = jax.device_put(fetched, place)
    if has_base:
      return nnx.merge_state(params, self._base[1])
    if digest:
      self._base = digest, lora.split_lora(params)[1]
    return params


def _sampled(learner: Learner, has_base: bool) -> Any:
  """Returns what the engine is to get, adapters alone where it has the base."""
  params = learner.policy_params
  return lora.split_lora(params)[0] if has_base else params


def save(
  learner: Learner | Leader,
  manager: CheckpointManager,
  step: int,
  host: Mapping,
  score: float | None = None,
) -> None:
  """Saves a checkpoint of the learner's arrays and of `host` (JSON-able).

  score: of the checkpoint; the best one is kept.
  """
  if isinstance(learner, Leader):
    where = str(manager.directory), manager.keep
    processes.tell((_Follower.save, (*where, step), {}))
  with accelerator.turn():  # processes wait for each other by a program
    manager.save(step, learner.state(), host, score=score)


def copied(learner: Learner | Leader) -> Any | None:
  """Returns the learner's arrays as numpy ones that nothing changes any more.

  None where several processes have them, or where there is no room for two copies:
  `save` writes those while the learner waits.
  """
  if isinstance(learner, Leader):
    return None
  state = learner.state()
  size = sum(getattr(leaf, 'nbytes', 8) for leaf in jax.tree.leaves(state))
  if 2 * size > _available_bytes():
    return None

  def copy(leaf: Any) -> Any:
    if isinstance(leaf, jax.Array) and not any(
      device.platform == 'cpu' for device in leaf.devices()
    ):
      return np.asarray(leaf)  # a copy already
    return np.array(leaf)  # the next update may be given the memory

  with accelerator.turn():
    return jax.tree.map(copy, state)


def _available_bytes() -> float:
  """Returns what the machine has free for this process; infinite where unknown."""
  try:
    lines = pathlib.Path('/proc/meminfo').read_text().splitlines()
    found = next(line for line in lines if line.startswith('MemAvailable'))
    return int(found.split()[1]) * 1024
  except (OSError, StopIteration, ValueError):
    return math.inf


def restore(
  learner: Learner | Leader,
  manager: CheckpointManager,
  check: Callable[[Restored], None] = lambda restored: None,
  *,
  best: bool = False,
) -> Restored | None:
  """Loads the newest checkpoint into the learner; None where there is none.

  The learner lets go of what it has before the new is read: after an error in that
  it has nothing. check: raises where the checkpoint is not to be loaded. best: the
  one with the best score instead, where any has one. The
  learner's host state is the caller's to load; arrays are not given.
  """
  found = (manager.best() if best else None) or manager.latest()
  if found is None:
    return None
  check(found)
  if why := learner.misfit(found.host.get('learner', {})):
    raise UserError(
      f'{manager.path(found.step)} cannot be continued: {why}. Use the model, and the '
      'folder sft, that it was made with, or another --work_dir.'
    )
  if isinstance(learner, Leader):
    where = str(manager.directory), found.step
    processes.tell((_Follower.restore, where, {}))
  _restore(learner, manager, found.step)
  return found


def _restore(learner, manager: CheckpointManager, step: int) -> None:
  with accelerator.turn():
    shapes = learner.shapes()
    learner.load_state(manager.read(step, shapes, before=learner.let_go))


class _Follower:
  """Carries out in another process the calls that process 0 broadcasts."""

  learner: Learner

  def build(self, plan: Plan) -> None:
    self.learner = build(plan)

  def call(self, method: str, /, *args, **kwargs) -> None:
    getattr(self.learner, method)(*args, **kwargs)

  def fetch(self, has_base: bool) -> None:
    for leaf in jax.tree.leaves(_sampled(self.learner, has_base)):
      sharding.fetch(leaf)  # one after the other: it keeps none

  def save(self, directory: str, keep: int, step: int) -> None:
    manager = CheckpointManager(pathlib.Path(directory), keep)
    manager.save(step, self.learner.state())

  def restore(self, directory: str, step: int) -> None:
    _restore(self.learner, CheckpointManager(pathlib.Path(directory)), step)


@contextlib.contextmanager
def leading() -> Iterator[None]:
  """Ends the other processes when the run has ended, failed or been stopped."""
  told, within_s = _ENDED, _FAREWELL_S
  try:
    yield
  except Interrupted:
    told = _STOPPED
    raise
  except BaseException as error:
    presence.failed(error)
    within_s = _FAILED_S
    raise
  finally:
    if jax.process_count() > 1:
      with contextlib.suppress(ProcessLost):
        processes.tell(told, within_s=within_s)


def follow() -> None:
  """Carries out the calls of process 0 until its run has ended.

  Raises the error of a call of the learner that failed here and not in process 0, and
  SystemExit with the status of a stopped run where process 0 was stopped: what
  started the processes is to start them all again.
  """
  follower, failed = _Follower(), None
  while (told := _heard(failed)) not in (_ENDED, _STOPPED):
    does, args, kwargs = told
    presence.doing(_named(does, args))
    try:
      does(follower, *args, **kwargs)
    except Exception as error:  # noqa: BLE001 - see `_heard`
      failed = error
      presence.failed(error)
  if told == _STOPPED:
    raise SystemExit(_STOPPED)


def _named(does: Callable, args: Sequence) -> str:
  """Returns the name of a call that process 0 broadcasts."""
  return str(args[0]) if does is _Follower.call else does.__name__


def _heard(failed: Exception | None) -> Any:
  """Returns the next message.

  Raises `failed`, the error of the last call, if process 0 has not ended: it continues
  without this process, or would wait for it for ever.
  """
  if failed is None:
    return processes.hear()
  with contextlib.suppress(ProcessLost):
    if (told := processes.hear(within_s=_FAREWELL_S)) in (_ENDED, _STOPPED):
      return told
  raise failed
