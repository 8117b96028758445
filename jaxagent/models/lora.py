"""Low-rank adapters (paper 001 uses rank 32): y = x W + (alpha/r) (x A) B.

The base is frozen, A and B are trained. For rollouts they are merged into
the kernels; on disk they take PEFT's format (huggingface/peft).
"""

from __future__ import annotations

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

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


def split_lora(params: nnx.State) -> tuple[nnx.State, nnx.State]:
  """(adapters, base): gradients and optimizer take the first alone.

  `nnx.merge(graphdef, adapters, base)` gives the model back, and
  `nnx.merge_state(adapters, base)` the whole params.
  """
  return nnx.split_state(params, LoraParam, ...)


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

    def load(leaf=leaf, layer=layer):
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

  Raises ValueError with every missing, unknown or misshapen name, and on a
  PEFT option that is not implemented.
  """
  folder = pathlib.Path(folder)
  record = json.loads((folder / 'adapter_config.json').read_text())
  odd = {
    k: record[k]
    for k, fine in (
      ('peft_type', 'LORA'),
      ('bias', 'none'),
      ('use_dora', False),
      ('use_rslora', False),
      ('modules_to_save', None),
      ('rank_pattern', {}),
      ('alpha_pattern', {}),
      ('fan_in_fan_out', False),
    )
    if record.get(k, fine) not in (fine, None)
  }
  if odd:
    raise ValueError(f'{folder}: PEFT options not implemented: {odd}.')
  ours = {v.rsplit('.')[-1]: k for k, v in _PEFT.items()}
  unknown = set(record['target_modules']) - set(ours)
  if unknown:
    raise ValueError(
      f'{folder}: target_modules {sorted(unknown)} unknown; choose from '
      f'{tuple(ours)}.'
    )
  targets = tuple(t for t in _PEFT if t in {ours[m] for m in record['target_modules']})
  config = config.replace(
    lora_rank=record['r'],
    lora_alpha=float(record['lora_alpha']),
    lora_targets=targets,
  )
  config, graphdef, params = add_lora(config, params, seed=0)
  files = st.read_header(folder / 'adapter_model.safetensors')
  leaves = dict(_flat(params))
  names = _peft_names(config)
  wrong = [f'unknown {n}' for n in sorted(set(files) - {n for n, _, _ in names})]
  for name, path, _ in names:
    shape = leaves[path].shape[-2:][::-1]
    if name not in files:
      wrong.append(f'missing {name} {shape}')
    elif files[name].shape != shape:
      wrong.append(f'misshapen {name}: {files[name].shape}, not {shape}')
  if wrong:
    raise ValueError(f'{folder}: adapters do not fit:\n  ' + '\n  '.join(wrong))
  for name, path, layer in names:
    value = jnp.asarray(np.asarray(files[name].read()).T, leaves[path].dtype)
    if layer is not None:
      value = leaves[path][...].at[layer].set(value)
    leaves[path] = leaves[path].replace(value)
  return config, graphdef, nnx.from_flat_state(leaves)


def _flat(params):
  return [(tuple(k), v) for k, v in nnx.to_flat_state(params)]


def _peft_names(config: ModelConfig):
  """(PEFT name, our path, layer of a scanned stack or None) of each factor."""
  out = []
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
