"""One run over several processes: the first leads, the others follow its learner.

Process 0 does the whole job: tasks, experts, sandboxes, engine, scheduler, files. A
mesh over several processes needs all of them in every program of the learner, so what
process 0 does with its learner it first tells the others, and they do it with theirs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

from jaxagent import accelerator, models, processes, sharding
from jaxagent.checkpoint import CheckpointManager, Restored
from jaxagent.learner import Learner, LearnerConfig
from jaxagent.loops.host import StopFlag
from jaxagent.models import attention, hf

_FAREWELL_S = 120.0  # in which a process that ends closes what it has open
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
  """What a learner is made of.

  path: folder of a Hugging Face model to begin with, '' for random weights;
    critic_path: of the value model's, '' for a copy of the policy. With several
    processes each of them reads it.
  """

  model: models.ModelConfig
  options: LearnerConfig
  mesh: Mapping[str, int]
  seed: int
  pad_id: int
  path: str = ''
  critic_path: str = ''


def run_options(model: models.ModelConfig) -> dict[str, Any]:
  """How it runs, which a Hugging Face folder does not say."""
  return {
    'dtype': model.dtype,
    'scan_layers': model.scan_layers,
    'remat': model.remat,
    'attention': model.attention,
  }


def build(plan: Plan) -> Learner:
  """The learner. Raises ValueError where a folder, mesh or kernel does not fit."""
  mesh, model = sharding.make_mesh(plan.mesh), plan.model
  # Before anything is loaded, which takes minutes.
  sharding.check_model(model, mesh)
  attention.choose(
    model.attention, model.dtype, model.head_dim, device=mesh.devices.flat[0]
  )
  params = critic = None
  if plan.path:
    _, params = _load(plan.path, plan.model)
  if plan.critic_path and plan.options.uses_value:
    critic = _load(plan.critic_path, plan.model)
  return Learner(
    plan.model,
    plan.options,
    mesh=mesh,
    seed=plan.seed,
    policy_params=params,
    critic=critic,
    pad_id=plan.pad_id,
  )


def _load(folder: str, like: models.ModelConfig):
  """(config, params) of a Hugging Face folder, to run as `like` does."""
  config, _, params = hf.load_hf(folder, **run_options(like))
  return config, params


def make_learner(plan: Plan) -> Learner | Leader:
  """Of this process alone, or of all of them."""
  if jax.process_count() == 1:
    return build(plan)
  processes.tell((_Follower.build, (plan,), {}))
  return Leader(build(plan))


class Leader:
  """Process 0's learner, as `Learner`; its calls are made by every process."""

  def __init__(self, learner: Learner):
    self._learner = learner

  def __getattr__(self, name: str):
    if name in _TOLD:
      return functools.partial(self._all, name)
    return getattr(self._learner, name)

  def _all(self, method: str, /, *args, **kwargs):
    processes.tell((_Follower.call, (method, *args), kwargs))
    return getattr(self._learner, method)(*args, **kwargs)

  @property
  def policy_params(self) -> Any:
    """The policy on this process's own devices, for its engine."""
    processes.tell((_Follower.fetch, (), {}))
    whole = sharding.fetch(self._learner.policy_params)
    own = jax.local_devices()
    mesh = sharding.make_mesh({'fsdp': len(own)}, own)
    return jax.device_put(whole, sharding.parameter_shardings(whole, mesh))


def save(
  learner: Learner | Leader, manager: CheckpointManager, step: int, host: Mapping
) -> None:
  """A checkpoint of the learner's arrays and of `host` (JSON-able)."""
  if isinstance(learner, Leader):
    where = str(manager.directory), manager.keep
    processes.tell((_Follower.save, (*where, step), {}))
  with accelerator.turn():  # processes wait for each other by a program
    manager.save(step, learner.state(), host)


def restore(
  learner: Learner | Leader,
  manager: CheckpointManager,
  check: Callable[[Restored], None] = lambda restored: None,
) -> Restored | None:
  """Loads the newest checkpoint into the learner; None where there is none.

  check: raises where it is not to be loaded. The learner's host state is the caller's
  to load.
  """
  if isinstance(learner, Leader):
    processes.tell((_Follower.restore, (str(manager.directory),), {}))
  return _restore(learner, manager, check)


def _restore(learner, manager, check=lambda restored: None) -> Restored | None:
  with accelerator.turn():
    restored = manager.restore_latest(learner.state())
    if restored is not None:
      check(restored)
      learner.load_state(restored.arrays)
  return restored


class _Follower:
  """What another process does when it is told."""

  learner: Learner

  def build(self, plan: Plan) -> None:
    self.learner = build(plan)

  def call(self, method: str, /, *args, **kwargs) -> None:
    getattr(self.learner, method)(*args, **kwargs)

  def fetch(self) -> None:
    for leaf in jax.tree.leaves(self.learner.policy_params):
      sharding.fetch(leaf)  # one after the other: it keeps none

  def save(self, directory: str, keep: int, step: int) -> None:
    manager = CheckpointManager(pathlib.Path(directory), keep)
    manager.save(step, self.learner.state())

  def restore(self, directory: str) -> None:
    _restore(self.learner, CheckpointManager(pathlib.Path(directory)))


@contextlib.contextmanager
def leading() -> Iterator[None]:
  """Ends the others, too, when the run has ended, however."""
  try:
    yield
  finally:
    if jax.process_count() > 1:
      with contextlib.suppress(processes.Lost):
        processes.tell(None, within_s=_FAREWELL_S)


def follow() -> None:
  """All that a process other than the first does, until that one's run has ended.

  Raises what a call of the learner raised here and not in process 0.
  """
  stop = StopFlag()
  stop.install()  # process 0 decides when to stop, and what is saved before
  follower, failed = _Follower(), None
  try:
    while (told := _heard(failed)) is not None:
      does, args, kwargs = told
      try:
        does(follower, *args, **kwargs)
      except Exception as error:  # noqa: BLE001 - see `_heard`
        failed = error
  finally:
    stop.restore()


def _heard(failed: Exception | None) -> Any:
  """The next message; after a failure None, which says that process 0 has ended too.

  Raises `failed` where process 0 goes on, or waits for this process for ever.
  """
  if failed is None:
    return processes.hear()
  with contextlib.suppress(processes.Lost):
    if processes.hear(within_s=_FAREWELL_S) is None:
      return None
  raise failed
