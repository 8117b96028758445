"""The configured rollout engine over the learner's policy."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from flax import nnx

from jaxagent.config.engine_checks import has_cpu_build
from jaxagent.devices import accelerator
from jaxagent.errors import UserError
from jaxagent.models import (
  ModelConfig,
  abstract_decoder,
  hf,
  lora,
  token_logprobs,
)
from jaxagent.rollout.engine import Ends, Engine, EngineError, RequestLimits
from jaxagent.rollout.engines.native_engine import NativeEngine, Shapes
from jaxagent.rollout.engines.nccl_sync import NcclSync
from jaxagent.rollout.engines.vllm_adapters import AdapterSync
from jaxagent.rollout.engines.vllm_api import CPU_BLOCK, ServerOptions
from jaxagent.rollout.engines.vllm_engine import Fleet, VllmEngine
from jaxagent.rollout.engines.vllm_fleet import LaunchedFleet, RemoteFleet
from jaxagent.rollout.engines.weight_probe import LogProbProbe
from jaxagent.rollout.engines.weight_sync import (
  FileSync,
  FolderSync,
  WeightSync,
)

if TYPE_CHECKING:
  pass

# Requests at once, where nothing else is asked: slots of the native engine,
# and what a server of vLLM takes.
SLOTS, _SEQS = 48, 256
# Of the probe: more than a block, by which vLLM shares prefixes; a server that somebody
# else started has blocks of 128 at most.
_PROBE_TOKENS, _MORE_THAN_A_BLOCK = 136, 8
# Nats: a hundred times what rounding was seen to do, and twice.
_GAPS = {'float32': 1e-3, 'bfloat16': 0.2}


@dataclasses.dataclass(frozen=True)
class Served:
  """A policy to be served, and its run.

  params: the weights to begin with.
  work: folder of the run; gets `vllm` and logs of servers.
  adapted: the model with adapters, where the engine gets them unmerged.
  """

  config: Any
  work: pathlib.Path
  model: ModelConfig
  graphdef: nnx.GraphDef
  params: nnx.State
  tokenizer: Any
  adapted: ModelConfig | None = None


def make_engine(served: Served) -> Engine:
  """Makes the configured engine, which the caller closes.

  vLLM serves from the first `update_weights` on.
  """
  kinds: dict[str, Callable[[Served], Engine]]
  kinds = {'native': _native, 'vllm': _vllm}
  make = kinds[served.config.rollout.engine]
  try:
    return make(served)
  except EngineError as error:
    raise UserError(f'config.rollout.engine: {error}') from error


def _native(served: Served) -> NativeEngine:
  roll, tokenizer = served.config.rollout, served.tokenizer
  return NativeEngine(
    served.graphdef,
    served.params,
    served.model,
    Shapes(
      prompt_buckets=_powers(64, roll.max_prompt_tokens),
      batch_buckets=_powers(1, roll.max_num_seqs or SLOTS, by=4),
      max_new_tokens=roll.max_new_tokens,
      pad_id=tokenizer.pad_id,
      batch_invariant=roll.batch_invariant,
    ),
    Ends(tuple(tokenizer.eos_ids), tokenizer.decode_response),
    seed=served.config.seed,
  )


def _vllm(served: Served) -> VllmEngine:
  roll, model = served.config.rollout, served.model
  options, tokenizer = roll.vllm, served.tokenizer
  seqs = roll.max_num_seqs or _SEQS
  limits = RequestLimits(
    model.vocab_size, roll.max_prompt_tokens, roll.max_new_tokens
  )
  fleet: Fleet
  probe_tokens = _PROBE_TOKENS
  if options.urls:
    fleet = RemoteFleet(options.urls)
  else:
    if has_cpu_build(options):
      probe_tokens = CPU_BLOCK + _MORE_THAN_A_BLOCK
    fleet = LaunchedFleet(
      options.python,
      _first_folder(served),
      served.work / 'logs',
      ServerOptions(
        dtype=model.dtype,
        max_model_len=limits.longest,
        max_num_seqs=seqs,
        sync=options.sync,
        cpu=has_cpu_build(options),
        gpu_memory_utilization=options.gpu_memory_utilization,
        enforce_eager=options.enforce_eager,
        lora_rank=served.adapted.lora_rank if served.adapted else 0,
        max_loras=_max_loras(served.config),
      ),
      n=options.servers,
      start_s=options.start_s,
      devices=options.devices,
    )
  probe = LogProbProbe(
    functools.partial(_score, _graphdef_of(served)),
    vocab_size=tokenizer.vocab_size,
    prompt_tokens=min(roll.max_prompt_tokens, probe_tokens),
    max_gap_nats=options.max_gap_nats or _GAPS[model.dtype],
    seed=served.config.seed,
  )
  return VllmEngine(
    fleet,
    _sync(served, probe),
    probe,
    limits,
    Ends(tuple(tokenizer.eos_ids), tokenizer.decode_response),
    seed=served.config.seed,
    max_num_seqs=seqs,
  )


def _max_loras(config: Any) -> int:
  """Returns how many versions of adapters a server holds at once.

  Requests of more versions than that are answered, too, but wait for each other.
  """
  rl = config.rl
  ahead = 0 if rl.rest == 'wait' else max(1, rl.max_staleness)
  return config.rollout.vllm.max_loras or 2 + ahead


def _sync(served: Served, probe: LogProbProbe) -> WeightSync:
  """Returns the transport of weights or, where there are, of adapters."""
  base = _base_sync(served)
  if served.adapted is None:
    return base
  shared = served.config.rollout.vllm.shared_dir
  directory = pathlib.Path(shared or served.work / 'vllm')
  return AdapterSync(base, _Adapted(served.adapted), probe, directory)


class _Adapted:
  """See `vllm_adapters.AdaptedModel`."""

  def __init__(self, config: ModelConfig):
    self._config, self.rank = config, config.lora_rank

  def split(self, params: Any) -> tuple[Any, Any]:
    if not _has_adapters(params):
      return params, None
    adapters, base = lora.split_lora(params)
    return base, adapters

  def is_same(self, base: Any, other: Any) -> bool:
    mine, theirs = jax.tree.leaves(base), jax.tree.leaves(other)
    pairs = zip(mine, theirs)
    return len(mine) == len(theirs) and all(a is b for a, b in pairs)

  def save(self, params: Any, folder: pathlib.Path) -> object:
    return lora.save_peft(folder, self._config, params)

  def random(self, params: Any, size: float) -> Any:
    return lora.random_lora(
      self._config, self.split(params)[0], size=size, seed=0
    )


def _has_adapters(params: Any) -> bool:
  paths = (tuple(path) for path, _ in nnx.to_flat_state(params))
  return any(path[-1] == 'lora_a' for path in paths)


def _base_sync(served: Served) -> WeightSync:
  """Returns the transport of weights, in the precision that the model computes in."""
  options, own = served.config.rollout.vllm, served.work / 'vllm'
  model = served.model

  def tensors(params: Any):
    return hf.hf_tensors(model, params, tied_head=True)

  if options.sync == 'nccl':
    return NcclSync(tensors, model.dtype, jax.local_devices()[0])
  if options.sync == 'folder':

    def save(params: Any, folder: pathlib.Path):
      hf.save_hf(folder, model, params, dtype=model.dtype, tied_head=True)

    return FolderSync(save, pathlib.Path(options.shared_dir or own))
  return FileSync(
    tensors,
    pathlib.Path(options.shared_dir or '/dev/shm'),
    own,
    np.dtype(getattr(ml_dtypes, model.dtype, model.dtype)),
  )


def _first_folder(served: Served) -> pathlib.Path:
  """Writes the checkpoint that servers start from; their weights come later."""
  folder = served.work / 'vllm' / 'model'
  shutil.rmtree(folder, ignore_errors=True)
  return hf.save_hf(
    folder,
    served.model,
    served.params,
    dtype=served.model.dtype,
    tokenizer=served.work / 'tokenizer',
  )


@functools.partial(jax.jit, static_argnums=0)
def _log_probs(graphdef: Any, params: Any, tokens: Any):
  model = nnx.merge(graphdef, params)
  hidden = model(tokens, jnp.arange(tokens.size)[None], jnp.ones_like(tokens))
  logp, _ = token_logprobs(hidden[:, :-1], model.unembed, tokens[:, 1:])
  return logp[0]


def _graphdef_of(served: Served) -> Callable[[Any], nnx.GraphDef]:
  """Returns what gives the graph definition of parameters, with adapters or without."""
  if served.adapted is None:
    return lambda params: served.graphdef
  with_adapters = abstract_decoder(served.adapted)[0]
  return lambda params: (
    with_adapters if _has_adapters(params) else served.graphdef
  )


def _score(
  graphdef_of: Callable[[Any], Any], params: Any, tokens: np.ndarray
) -> np.ndarray:
  # A server that has come again is probed while the learner's programs run.
  with accelerator.turn():
    return np.asarray(_log_probs(graphdef_of(params), params, tokens[None]))


def _powers(low: int, high: int, by: int = 2) -> tuple[int, ...]:
  sizes = []
  while low < high:
    sizes.append(low)
    low *= by
  return (*sizes, high)
