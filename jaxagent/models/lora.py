"""Low-rank adapters (paper 001 uses rank 32): y = x W + (alpha/r) (x A) B.

The base is frozen, A and B are trained in float32. For rollouts they are merged
into the kernels; on disk they take PEFT's format (huggingface/peft).
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxagent.files import model_files
from jaxagent.models import hf
from jaxagent.models import safetensors_io as st
from jaxagent.models.config import ModelConfig
from jaxagent.models.decoder import (
  LoraParam,
  abstract_decoder,
)

_PEFT = {
  'q': 'self_attn.q_proj',
  'k': 'self_attn.k_proj',
  'v': 'self_attn.v_proj',
  'o': 'self_attn.o_proj',
  'gate': 'mlp.gate_proj',
  'up': 'mlp.up_proj',
  'down': 'mlp.down_proj',
}
_PREFIX = 'base_model.model.model.layers'
# Beside adapter_config.json: the digest of the base (`jaxagent.models.identity`).
BASE_FILE = 'base.json'
# Options of PEFT's LoraConfig (0.21) that change nothing in what a finished
# adapter computes, whatever their value.
_PEFT_INERT = frozenset(
  """auto_mapping base_model_name_or_path eva_config inference_mode lora_dropout
  megatron_core qalora_group_size revision runtime_config""".split()
)
_PEFT_READ = frozenset(
  'exclude_modules lora_alpha peft_type r target_modules use_rslora'.split()
)
# Those that are plain at these values; any other one, unknown ones too, must be
# null, false or empty. Of the ways to begin, these leave the base as it is
# (measured with 0.21.2); PiSSA, OLoRA, CorDA, LoftQ and LoRA-GA take from it
# what they begin with.
_PEFT_PLAIN: Mapping[str, tuple[Any, ...]] = {
  'bias': ('none', None),
  'init_lora_weights': (
    True,
    False,
    None,
    'gaussian',
    'orthogonal',
    'eva',
    'mica',
  ),
  'task_type': ('CAUSAL_LM', None),
}

_MOST = {'r': 2**20, 'lora_alpha': 1e9}


def split_lora(params: nnx.State) -> tuple[nnx.State, nnx.State]:
  """(adapters, base): gradients and optimizer take the first alone.

  `nnx.merge(graphdef, adapters, base)` gives the model back, and
  `nnx.merge_state(adapters, base)` the whole params.
  """
  adapters, base = nnx.split_state(params, LoraParam, ...)
  return adapters, base


def _key(seed: int) -> jax.Array:
  """The key of a seed's adapters, apart from those of a model's weights.

  `nnx.Rngs(seed)` folds 0, 1, ... into key(seed) itself, and so A would have the order
  of some kernel's entries (findings/jax_split_is_fold_in.sh).
  """
  return jax.random.fold_in(jax.random.key(seed), 2**32 - 1)


def add_lora(
  config: ModelConfig, params: nnx.State, *, seed: int
) -> tuple[ModelConfig, nnx.GraphDef, nnx.State]:
  """Fresh adapters (B = 0, A uniform up to 1/sqrt(fan-in)) beside a model without any.

  `config.lora_rank`, `lora_alpha` and `lora_targets` say which.
  """
  if config.lora_rank < 1:
    raise ValueError(f'lora_rank={config.lora_rank} must be at least 1.')
  unknown = set(config.lora_targets) - set(_PEFT)
  if unknown:
    raise ValueError(
      f'lora_targets {sorted(unknown)} unknown; choose from {tuple(_PEFT)}.'
    )
  graphdef, abstract = abstract_decoder(config)
  base = {tuple(k): v for k, v in nnx.to_flat_state(params)}
  leaves, key = {}, _key(seed)
  for i, (path, leaf) in enumerate(nnx.to_flat_state(abstract)):
    path = tuple(path)
    if path in base:
      leaves[path] = base[path]
    elif path[-1] == 'lora_a':
      bound = leaf.shape[-2] ** -0.5  # PEFT's: He's with a slope of sqrt(5)
      value = jax.random.uniform(
        jax.random.fold_in(key, i), leaf.shape, leaf.dtype, -bound, bound
      )
      leaves[path] = leaf.replace(value)
    else:
      leaves[path] = leaf.replace(jnp.zeros(leaf.shape, leaf.dtype))
  return config, graphdef, nnx.from_flat_state(leaves)


def random_lora(
  config: ModelConfig, base: nnx.State, *, size: float, seed: int
) -> nnx.State:
  """Random adapters beside a base: what is computed with them is another thing.

  size: of what an adapter adds to the output of its kernel, about, where inputs are
    of size 1.
  """
  _, _, params = add_lora(config, base, seed=seed)
  # Inputs x A of size sqrt(1/3), summed over the rank.
  scale = config.lora_alpha / config.lora_rank
  sd = size / (scale * math.sqrt(config.lora_rank / 3))
  leaves, key = dict(_flat(params)), _key(seed + 1)
  for i, (path, leaf) in enumerate(leaves.items()):
    if path[-1] == 'lora_b':
      drawn = jax.random.normal(jax.random.fold_in(key, i), leaf.shape)
      leaves[path] = leaf.replace((sd * drawn).astype(leaf.dtype))
  return nnx.from_flat_state(leaves)


def merged_kernel(
  kernel: jax.Array, a: jax.Array, b: jax.Array, scale: float
) -> jax.Array:
  """kernel [.., in, out] + scale a b in float32, rounded to the kernel's type once.

  a [.., in, r], b [.., r, out]. Of scanned layers one after another, so that one
  layer alone is there in float32.
  """
  if kernel.ndim > 2:
    one = functools.partial(merged_kernel, scale=scale)
    return jax.lax.map(lambda each: one(*each), (kernel, a, b))
  wide = jnp.float32
  delta = jnp.dot(a.astype(wide), b.astype(wide), precision='highest')
  return (kernel.astype(wide) + scale * delta).astype(kernel.dtype)


_merged_kernel = jax.jit(merged_kernel, static_argnums=3)


def merged_kernels(
  kernels: Mapping[str, jax.Array],
  adapters: Mapping[str, jax.Array],
  scale: float,
) -> dict[str, jax.Array]:
  """`merged_kernel` of each path of `kernels` that `adapters` has factors for."""
  out = {}
  for path, kernel in kernels.items():
    at = path.removesuffix('kernel')
    a, b = adapters[f'{at}lora_a'], adapters[f'{at}lora_b']
    out[path] = merged_kernel(kernel, a, b, scale)
  return out


def merge_lora(
  config: ModelConfig, params: nnx.State
) -> tuple[ModelConfig, nnx.GraphDef, nnx.State]:
  """Kernels with their adapters added in float32, adapters gone."""
  flat = {tuple(k): v for k, v in nnx.to_flat_state(params)}
  scale = config.lora_alpha / config.lora_rank if config.lora_rank else 0.0
  leaves = {}
  for path, leaf in flat.items():
    if path[-1] in ('lora_a', 'lora_b'):
      continue
    if (*path[:-1], 'lora_a') in flat and path[-1] == 'kernel':
      a, b = flat[*path[:-1], 'lora_a'], flat[*path[:-1], 'lora_b']
      leaf = leaf.replace(_merged_kernel(leaf[...], a[...], b[...], scale))
    leaves[path] = leaf
  config = config.replace(lora_rank=0)
  graphdef = abstract_decoder(config)[0]
  return config, graphdef, nnx.from_flat_state(leaves)


def save_peft(
  folder: str | pathlib.Path,
  config: ModelConfig,
  params: nnx.State,
  base_model: str = '',
  base_digest: str = '',
) -> pathlib.Path:
  """Writes adapter_config.json and adapter_model.safetensors, in float32.

  base_model, base_digest: folder and digest of the base; the digest goes into a file
  of its own, which PEFT does not read.
  """
  folder = pathlib.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  leaves, pending = dict(_flat(params)), []
  for name, path, layer in _peft_names(config):
    leaf = leaves[path]
    shape = leaf.shape[-2:][::-1]

    def load(leaf: Any = leaf, layer: int = layer):
      value = leaf[...] if layer is None else leaf[...][layer]
      return np.asarray(jax.device_get(value)).T

    pending.append(st.Pending(name, shape, load))
  st.write_file(
    folder / 'adapter_model.safetensors', pending, jnp.dtype('float32')
  )
  if base_digest:
    text = json.dumps({'base': base_digest}, indent=2) + '\n'
    (folder / BASE_FILE).write_text(text)
  record = {
    'peft_type': 'LORA',
    'task_type': 'CAUSAL_LM',
    'base_model_name_or_path': base_model,
    'r': config.lora_rank,
    'lora_alpha': config.lora_alpha,
    'lora_dropout': 0.0,
    'bias': 'none',
    'fan_in_fan_out': False,
    'inference_mode': True,
    'target_modules': sorted(
      _PEFT[t].rsplit('.')[-1] for t in config.lora_targets
    ),
  }
  text = json.dumps(record, indent=2, sort_keys=True) + '\n'
  (folder / 'adapter_config.json').write_text(text)
  return folder


@dataclasses.dataclass(frozen=True)
class Peft:
  """A PEFT folder whose adapters fit a model.

  config: the model's, with rank, alpha and targets of the adapters. base: digest of
  the base they were trained on, '' where the folder does not say.
  """

  config: ModelConfig
  files: Mapping[str, st.Tensor]
  base: str


def check_peft(folder: str | pathlib.Path, config: ModelConfig) -> Peft:
  """Reads all of a PEFT folder but its weights, which are looked at.

  Raises ValueError with every missing, unknown or misshapen name, on NaN, and
  on every option of PEFT that makes of it another thing than a plain adapter.
  That of rank-stabilized LoRA is one whose alpha is sqrt(r) times as large
  (Kalajdzievski 2023).
  """
  folder = pathlib.Path(folder)
  file = folder / 'adapter_config.json'
  record = model_files.read_json(file)
  _refuse_other_adapters(record, file)
  alpha = float(record['lora_alpha'])
  if record.get('use_rslora'):
    alpha *= math.sqrt(record['r'])
  config = config.replace(
    lora_rank=record['r'],
    lora_alpha=alpha,
    lora_targets=_targets(record, config, file),
  )
  leaves = dict(_flat(abstract_decoder(config)[1]))
  files, names = _tensors(folder), _peft_names(config)
  wrong = [
    f'unknown {n}' for n in sorted(set(files) - {n for n, _, _ in names})
  ]
  for name, path, _ in names:
    shape = leaves[path].shape[-2:][::-1]
    if name not in files:
      wrong.append(f'missing {name} {shape}')
    elif files[name].shape != shape:
      wrong.append(f'misshapen {name}: {files[name].shape}, not {shape}')
    elif files[name].dtype not in st.DTYPES:
      wrong.append(f'wrong dtype {name}: {files[name].dtype}')
    elif not files[name].finite():
      wrong.append(f'NaN or infinite elements in {name}')
  if wrong:
    raise ValueError(
      f'{folder}: adapters do not fit: ' + '; '.join(hf.condensed(wrong))
    )
  return Peft(config, files, _recorded_base(folder / BASE_FILE))


def _recorded_base(file: pathlib.Path) -> str:
  if not file.is_file():
    return ''
  base = model_files.read_json(file).get('base')
  if not isinstance(base, str):
    raise ValueError(
      f'{file}: base={base!r} must be the digest of a base; remove the file, or '
      'export the adapter again.'
    )
  return base


def load_peft(
  folder: str | pathlib.Path, config: ModelConfig, params: nnx.State
) -> tuple[ModelConfig, nnx.GraphDef, nnx.State]:
  """Adapters of a PEFT folder beside base `params`; raises as `check_peft` does."""
  found = check_peft(folder, config)
  config, graphdef, params = add_lora(found.config, params, seed=0)
  files, leaves = found.files, dict(_flat(params))
  for name, path, layer in _peft_names(config):
    # A copy: on the CPU an array can be the mapped file itself.
    value = jnp.asarray(np.array(files[name].read()).T, leaves[path].dtype)
    if layer is not None:
      value = leaves[path][...].at[layer].set(value)
    leaves[path] = leaves[path].replace(value)
  return config, graphdef, nnx.from_flat_state(leaves)


def _refuse_other_adapters(
  record: Mapping[str, Any], file: pathlib.Path
) -> None:
  """Raises ValueError with each option that changes what the adapter computes."""
  if record.get('peft_type') != 'LORA':
    raise ValueError(
      f"{file}: peft_type={record.get('peft_type')!r}; only 'LORA' is "
      'implemented.'
    )
  odd = {}
  for key, value in record.items():
    if key in _PEFT_INERT or key in _PEFT_READ or key.endswith('_version'):
      continue
    if key in _PEFT_PLAIN:
      plain = value in _PEFT_PLAIN[key]
    else:  # 0 is not false: it is a layer's number
      plain = value is None or value is False or value in ({}, [], '')
    if not plain:
      odd[key] = value
  if odd:
    said = ', '.join(f'{key}={value!r}' for key, value in odd.items())
    raise ValueError(
      f'{file}: PEFT options not implemented: {said}. Merge the adapter with '
      'PEFT (merge_and_unload) and give the whole model.'
    )
  rescaled = record.get('use_rslora')
  if rescaled not in (None, True, False):
    raise ValueError(f'{file}: use_rslora={rescaled!r} must be true or false.')
  for key in ('r', 'lora_alpha'):
    value = record.get(key)
    kinds = int if key == 'r' else (int, float)
    # JSON of Python has NaN, Infinity and whole numbers that no float holds.
    if (
      isinstance(value, bool)
      or not isinstance(value, kinds)
      or not 0 < value <= _MOST[key]
    ):
      raise ValueError(
        f'{file}: {key}={str(value)[:40]} must be a number above 0, at most '
        f'{_MOST[key]:g}.'
      )


def _targets(
  record: Mapping[str, Any], config: ModelConfig, file: pathlib.Path
) -> tuple[str, ...]:
  """Kinds of kernels that have adapters, found as PEFT finds them.

  Source: `check_target_module_exists` of peft/tuners/tuners_utils.py, 0.21.
  Raises ValueError where some layers only would have them, or another module.
  """
  wanted = _names(record, 'target_modules', file)
  without = _names(record, 'exclude_modules', file)
  if isinstance(wanted, str) and wanted.lower() == 'all-linear':
    wanted = list(_PEFT.values())
  layers = range(config.num_hidden_layers)
  keys = {
    t: [f'model.layers.{i}.{m}' for i in layers] for t, m in _PEFT.items()
  }
  keys |= {name: [name] for name in ('lm_head', 'model.embed_tokens')}
  unknown = [
    name for name in (wanted if isinstance(wanted, list) else [])
    if not any(_matches([name], key) for of in keys.values() for key in of)
  ]  # fmt: skip
  found = {
    kind: [k for k in of if _matches(wanted, k) and not _matches(without, k)]
    for kind, of in keys.items()
  }
  if unknown or not any(found.values()):
    raise ValueError(
      f'{file}: target_modules {unknown or wanted} unknown; choose from '
      f'{tuple(m.rsplit(".")[-1] for m in _PEFT.values())}.'
    )
  part = [
    k[0] for t, k in found.items() if t in _PEFT and 0 < len(k) < len(layers)
  ]
  if other := [*part, *found['lm_head'], *found['model.embed_tokens']]:
    raise ValueError(
      f'{file}: target_modules={record["target_modules"]!r} means {other[0]} but '
      'not this kernel in every layer, or not a kernel of a layer: not '
      'implemented. Merge the adapter with PEFT (merge_and_unload) and give the '
      'whole model.'
    )
  return tuple(target for target in _PEFT if found[target])


def _names(
  record: Mapping[str, Any], key: str, file: pathlib.Path
) -> str | list[str] | None:
  """Modules as PEFT names them: a list, a regular expression, None to exclude."""
  value = record.get(key)
  if isinstance(value, list) and all(isinstance(m, str) for m in value):
    return value
  if value is None and key == 'exclude_modules':
    return None
  try:
    if not isinstance(value, str):
      raise TypeError(f'a {type(value).__name__} is neither')
    re.compile(value)
  except (TypeError, re.error) as error:
    raise ValueError(
      f'{file}: {key}={value!r} must be a list of names or a regular expression '
      f'({error}).'
    ) from error
  return value


def _matches(wanted: str | list[str] | None, key: str) -> bool:
  """Whether PEFT's names, or its regular expression, mean a module."""
  if isinstance(wanted, str):
    return bool(wanted) and re.fullmatch(wanted, key) is not None
  return any(key == name or key.endswith(f'.{name}') for name in wanted or ())


def _tensors(folder: pathlib.Path) -> dict[str, st.Tensor]:
  file = folder / 'adapter_model.safetensors'
  if not file.is_file():
    hint = ' adapter_model.bin is pickle and is never loaded;'
    hint = hint if (folder / 'adapter_model.bin').is_file() else ''
    raise FileNotFoundError(
      f'no {file};{hint} save it with safe_serialization=True.'
    )
  return st.read_header(file)


def _flat(params: Any):
  return [(tuple(k), v) for k, v in nnx.to_flat_state(params)]


def _peft_names(config: ModelConfig):
  """(PEFT name, our path, layer of a scanned stack or None) of each factor."""
  out: list[tuple[str, tuple, int | None]] = []
  for i in range(config.num_hidden_layers):
    for target in config.lora_targets:
      for leaf, theirs in (('lora_a', 'lora_A'), ('lora_b', 'lora_B')):
        name = f'{_PREFIX}.{i}.{_PEFT[target]}.{theirs}.weight'
        if config.scan_layers:
          out.append((name, ('layers', target, leaf), i))
        else:
          out.append((name, ('layers', i, target, leaf), None))
  return out


__all__ = [
  'LoraParam',
  'Peft',
  'add_lora',
  'check_peft',
  'load_peft',
  'merge_lora',
  'merged_kernel',
  'merged_kernels',
  'random_lora',
  'save_peft',
  'split_lora',
]
