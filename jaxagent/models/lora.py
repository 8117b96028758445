"""Low-rank adapters (paper 001 uses rank 32): y = x W + (alpha/r) (x A) B.

The base is frozen, A and B are trained. For rollouts they are merged into
the kernels; on disk they take PEFT's format (huggingface/peft).
"""

from __future__ import annotations

import json
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
# Options of PEFT's LoraConfig (0.21) that change nothing in what a finished
# adapter computes, whatever their value.
_PEFT_INERT = frozenset(
  """auto_mapping base_model_name_or_path eva_config inference_mode lora_dropout
  megatron_core qalora_group_size revision runtime_config""".split()
)
_PEFT_READ = frozenset(
  'exclude_modules lora_alpha peft_type r target_modules'.split()
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


def split_lora(params: nnx.State) -> tuple[nnx.State, nnx.State]:
  """(adapters, base): gradients and optimizer take the first alone.

  `nnx.merge(graphdef, adapters, base)` gives the model back, and
  `nnx.merge_state(adapters, base)` the whole params.
  """
  adapters, base = nnx.split_state(params, LoraParam, ...)
  return adapters, base


def add_lora(
  config: ModelConfig, params: nnx.State, *, seed: int
) -> tuple[ModelConfig, nnx.GraphDef, nnx.State]:
  """Fresh adapters (B = 0) beside the weights of a model without any.

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
  leaves, key = {}, jax.random.key(seed)
  for i, (path, leaf) in enumerate(nnx.to_flat_state(abstract)):
    path = tuple(path)
    if path in base:
      leaves[path] = base[path]
    elif path[-1] == 'lora_a':
      bound = (6.0 / leaf.shape[-2]) ** 0.5
      value = jax.random.uniform(
        jax.random.fold_in(key, i), leaf.shape, leaf.dtype, -bound, bound
      )
      leaves[path] = leaf.replace(value)
    else:
      leaves[path] = leaf.replace(jnp.zeros(leaf.shape, leaf.dtype))
  return config, graphdef, nnx.from_flat_state(leaves)


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
      a = flat[*path[:-1], 'lora_a'][...].astype(jnp.float32)
      b = flat[*path[:-1], 'lora_b'][...].astype(jnp.float32)
      # Leading layer axis of a scanned stack included.
      delta = jnp.einsum('...ir,...ro->...io', a, b)
      kernel = leaf[...]
      leaf = leaf.replace(
        (kernel.astype(jnp.float32) + scale * delta).astype(kernel.dtype)
      )
    leaves[path] = leaf
  config = config.replace(lora_rank=0)
  graphdef = abstract_decoder(config)[0]
  return config, graphdef, nnx.from_flat_state(leaves)


def save_peft(
  folder: str | pathlib.Path,
  config: ModelConfig,
  params: nnx.State,
  base_model: str = '',
) -> pathlib.Path:
  """Writes adapter_config.json and adapter_model.safetensors."""
  folder = pathlib.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  pending = []
  for name, path, layer in _peft_names(config):
    leaf = dict(_flat(params))[path]
    shape = leaf.shape[-2:][::-1]

    def load(leaf: Any = leaf, layer: int = layer):
      value = leaf[...] if layer is None else leaf[...][layer]
      return np.asarray(jax.device_get(value)).T

    pending.append(st.Pending(name, shape, load))
  st.write_file(
    folder / 'adapter_model.safetensors',
    pending,
    jnp.dtype(config.param_dtype),
  )
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


def load_peft(
  folder: str | pathlib.Path, config: ModelConfig, params: nnx.State
) -> tuple[ModelConfig, nnx.GraphDef, nnx.State]:
  """Adapters of a PEFT folder beside base `params`.

  Raises ValueError with every missing, unknown or misshapen name, on NaN, and
  on every option of PEFT that makes of it another thing than a plain adapter.
  """
  folder = pathlib.Path(folder)
  file = folder / 'adapter_config.json'
  record = model_files.read_json(file)
  _refuse_other_adapters(record, file)
  config = config.replace(
    lora_rank=record['r'],
    lora_alpha=float(record['lora_alpha']),
    lora_targets=_targets(record, config, file),
  )
  config, graphdef, params = add_lora(config, params, seed=0)
  files = _tensors(folder)
  leaves = dict(_flat(params))
  names = _peft_names(config)
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
  for name, path, layer in names:
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
  for key in ('r', 'lora_alpha'):
    value = record.get(key)
    kinds = int if key == 'r' else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or value <= 0:
      raise ValueError(f'{file}: {key}={value!r} must be a number above 0.')


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
  'add_lora',
  'load_peft',
  'merge_lora',
  'save_peft',
  'split_lora',
]
