"""Hugging Face folders in and out, by one table of weights.

Every name, shape and dtype is checked before any weight is loaded, and all
that is wrong is reported at once. Safetensors only: no pickle, no remote code.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxagent.files import copies, model_files, readings
from jaxagent.models import safetensors_io as st
from jaxagent.models.config import ModelConfig
from jaxagent.models.decoder import abstract_decoder

Path = tuple[Any, ...]
# From a weight's path and shape to its sharding (None: the default device).
ShardingOf = Callable[[Path, tuple[int, ...]], jax.sharding.Sharding | None]

# Our leaf in a layer -> HF's name in `model.layers.N.`, transposed or not.
_LAYER = {
  ('input_norm', 'scale'): ('input_layernorm.weight', False),
  ('q', 'kernel'): ('self_attn.q_proj.weight', True),
  ('k', 'kernel'): ('self_attn.k_proj.weight', True),
  ('v', 'kernel'): ('self_attn.v_proj.weight', True),
  ('o', 'kernel'): ('self_attn.o_proj.weight', True),
  ('q', 'bias'): ('self_attn.q_proj.bias', False),
  ('k', 'bias'): ('self_attn.k_proj.bias', False),
  ('v', 'bias'): ('self_attn.v_proj.bias', False),
  ('o', 'bias'): ('self_attn.o_proj.bias', False),
  ('q_norm', 'scale'): ('self_attn.q_norm.weight', False),
  ('k_norm', 'scale'): ('self_attn.k_norm.weight', False),
  ('post_norm', 'scale'): ('post_attention_layernorm.weight', False),
  ('gate', 'kernel'): ('mlp.gate_proj.weight', True),
  ('up', 'kernel'): ('mlp.up_proj.weight', True),
  ('down', 'kernel'): ('mlp.down_proj.weight', True),
}
_TOP = {
  ('embed',): 'model.embed_tokens.weight',
  ('norm', 'scale'): 'model.norm.weight',
  ('lm_head',): 'lm_head.weight',
}

RUN_FILE = 'run.json'  # run options beside a config.json that this file wrote


@dataclasses.dataclass(frozen=True)
class Weight:
  """One of our weights and the HF tensors it is made of.

  A scanned weight [L, ...] is made of L tensors, any other of one.
  """

  path: Path
  shape: tuple[int, ...]
  dtype: Any
  names: tuple[str, ...]
  transpose: bool
  stacked: bool

  @property
  def hf_shape(self) -> tuple[int, ...]:
    """Shape of each HF tensor."""
    shape = self.shape[1:] if self.stacked else self.shape
    return shape[::-1] if self.transpose else shape


def weight_table(config: ModelConfig) -> list[Weight]:
  """Every weight of the base model (no adapters), in the order of layers."""
  config = config.replace(lora_rank=0)
  flat = nnx.to_flat_state(abstract_decoder(config)[1])
  count = config.num_hidden_layers
  table = []
  for keys, leaf in flat:
    path: Any = tuple(keys)
    names: tuple[str, ...]
    if path in _TOP:
      names, transpose, stacked = (_TOP[path],), False, False
    else:
      name, transpose = _LAYER[path[-2:]]
      stacked = len(path) == 3
      which = range(count) if stacked else (path[1],)
      names = tuple(f'model.layers.{i}.{name}' for i in which)
    table.append(
      Weight(path, leaf.shape, leaf.dtype, names, transpose, stacked)
    )
  return sorted(table, key=lambda w: [_natural(part) for part in w.path])


def load_hf(
  folder: str | pathlib.Path,
  *,
  sharding_of: ShardingOf | None = None,
  head: bool = True,
  **run_options: Any,
) -> tuple[ModelConfig, nnx.GraphDef, nnx.State]:
  """Reads an HF folder tensor by tensor, each slice straight to its shard.

  The host holds one weight at most, of this process's devices. head: without it
  an output table of its own is checked but not read: its leaf is a shape.
  `run_options` go to `ModelConfig.from_hf` (dtype, scan_layers, ...).
  Raises before loading: ValueError with every unknown, missing or misshapen
  name; FileNotFoundError where config or shards are not there.
  """
  folder = pathlib.Path(folder)
  config = ModelConfig.from_hf(folder, **run_options)
  check_tokenizer(folder, config)
  files = st.read_index(folder)
  base = config.replace(lora_rank=0)
  table = weight_table(base)
  check_names(files, table, base, str(folder))
  graphdef, abstract = abstract_decoder(base)
  leaves = dict(nnx.to_flat_state(abstract))
  for weight in table:
    if not head and weight.path == ('lm_head',):
      continue
    value = _load_weight(weight, files, sharding_of)
    leaves[weight.path] = leaves[weight.path].replace(value)
  params = nnx.from_flat_state(leaves)
  if config.lora_rank:
    from jaxagent.models import lora

    return lora.add_lora(config, params, seed=0)
  return config, graphdef, params


def check_folder(folder: str | pathlib.Path) -> None:
  """Raises as `load_hf` would, without keeping a weight."""
  folder = pathlib.Path(folder)
  config = ModelConfig.from_hf(folder).replace(lora_rank=0)
  check_tokenizer(folder, config)
  files, table = st.read_index(folder), weight_table(config)
  check_names(files, table, config, str(folder))
  for name in (n for weight in table for n in weight.names):
    if not files[name].finite():
      raise _not_finite(files[name], name)


def check_names(
  files: dict[str, st.Tensor],
  table: list[Weight],
  config: ModelConfig,
  where: str,
) -> None:
  """Raises ValueError with all that does not fit, at once.

  What is wrong alike in several layers is one line, and so is a prefix that
  all names lack or have too many.
  """
  wanted = {n: w for w in table for n in w.names}
  wrong = []
  if prefix := _prefix(set(files), set(wanted)):
    said, files = _renamed(files, *prefix)
    wrong.append(said)
  for name, weight in wanted.items():
    if name not in files:
      wrong.append(f'missing {name} {weight.hf_shape}')
      continue
    found = files[name]
    if found.shape != weight.hf_shape:
      wrong.append(f'misshapen {name}: {found.shape}, not {weight.hf_shape}')
    if found.dtype not in st.DTYPES:
      wrong.append(
        f'wrong dtype {name}: {found.dtype}, not one of {tuple(st.DTYPES)}'
      )
  for name in sorted(set(files) - set(wanted)):
    if name.endswith('rotary_emb.inv_freq'):
      continue  # a constant that old exports wrote
    if name == 'lm_head.weight' and config.tie_word_embeddings:
      if _same_bytes(files, name, 'model.embed_tokens.weight'):
        continue
      wrong.append(
        'unknown lm_head.weight: the config says tie_word_embeddings, and it '
        'differs from the embedding'
      )
      continue
    wrong.append(f'unknown {name} {files[name].shape}')
  if wrong:
    wrong = condensed(wrong)
    between = '\n  ' if len(wrong) > 1 else ' '
    raise ValueError(
      between.join([f'{where}: the weights do not fit the config:', *wrong])
    )


def condensed(lines: list[str]) -> list[str]:
  """Joins lines that differ in the number of a layer alone."""
  groups: dict[str, list[tuple[int, str]]] = {}
  for line in lines:
    key = re.sub(r'\blayers\.\d+\.', 'layers.*.', line, count=1)
    found = re.search(r'\blayers\.(\d+)\.', line)
    groups.setdefault(key, []).append((int(found[1]) if found else 0, line))
  out = []
  for key, members in groups.items():
    layers = sorted(layer for layer, _ in members)
    if len(members) == 1:
      out.append(members[0][1])
    elif layers == list(range(layers[0], layers[-1] + 1)):
      out.append(f'{key} in layers {layers[0]} to {layers[-1]}')
    else:
      out.append(f'{key} in layers {", ".join(map(str, layers))}')
  return out


def _prefix(have: set[str], wanted: set[str]) -> tuple[str, bool] | None:
  """(a common prefix, whether it is one too many), None without one.

  With it, or without it, half of the names or more are as they should be.
  """
  if len(have & wanted) * 2 >= len(wanted):
    return None
  ends = 'embed_tokens.weight'
  ours = next((n for n in wanted if n.endswith(ends)), '')
  for name in have:
    if not name.endswith(ends) or not ours:
      continue
    extra, lacking = name.removesuffix(ours), ours.removesuffix(name)
    for prefix, renamed in (
      (extra, {n.removeprefix(extra) for n in have}),
      (lacking, {lacking + n for n in have}),
    ):
      if prefix not in (name, ours, '') and len(renamed & wanted) * 2 >= len(
        wanted
      ):
        return prefix, prefix == extra
  return None


def _renamed(
  files: dict[str, st.Tensor], prefix: str, extra: bool
) -> tuple[str, dict[str, st.Tensor]]:
  """Returns (complaint about a prefix or '', the tensors renamed by it)."""
  file = next(iter(files.values())).file.name
  if extra:
    return (
      f'the names in {file} begin with {prefix!r}, which is too much: unwrap '
      'the model (an adapter: merge it) and save it again.'
    ), {name.removeprefix(prefix): t for name, t in files.items()}
  # The output head of a whole model never has it.
  return (
    f'the names in {file} lack {prefix!r}: they are those of the bare model; '
    'save the one for causal LM.'
  ), {
    n if n == _TOP['lm_head',] else prefix + n: t for n, t in files.items()
  }  # fmt: skip


def _not_finite(tensor: st.Tensor, name: str) -> ValueError:
  return ValueError(
    f'{tensor.file}: {name} has NaN or infinite elements; copy the file again, '
    'or take an earlier checkpoint.'
  )


def check_tokenizer(folder: pathlib.Path, config: ModelConfig) -> None:
  """Raises ValueError where tokenizer.json has ids that the model lacks."""
  file = folder / 'tokenizer.json'
  if not file.is_file():
    return
  raw = model_files.read_json(file)
  try:
    vocab = (raw.get('model') or {}).get('vocab') or {}
    ids = list(vocab.values()) if isinstance(vocab, dict) else range(len(vocab))
    ids = [
      *map(int, ids),
      *(int(t['id']) for t in raw.get('added_tokens') or []),
    ]
  except (AttributeError, KeyError, TypeError, ValueError) as error:
    raise ValueError(
      f'{file}: not a tokenizer ({error!r}); copy it again.'
    ) from error
  if ids and max(ids) >= config.vocab_size:
    raise ValueError(
      f"{file}: has id {max(ids)}, but the model's vocab_size is "
      f'{config.vocab_size}; it is the tokenizer of another model.'
    )


def save_hf(
  folder: str | pathlib.Path,
  config: ModelConfig,
  params: nnx.State,
  *,
  dtype: str | None = None,
  max_shard_bytes: int = 4 << 30,
  tokenizer: str | pathlib.Path | None = None,
  tied_head: bool = False,
  temperature: float = 1.0,
) -> pathlib.Path:
  """Writes a folder that `transformers` loads; adapters are merged.

  `tokenizer`: a folder whose tokenizer files are copied. `dtype` defaults
  to the weights' own. The folder must be new or empty. `tied_head`: see
  `hf_tensors`. `temperature`: what it is to be sampled at, as it was trained.
  """
  folder = pathlib.Path(folder)
  if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
    raise FileExistsError(f'{folder} is not empty; export to a new folder.')
  pending = hf_tensors(config, params, tied_head=tied_head)
  config = config.replace(param_dtype=dtype or config.param_dtype, lora_rank=0)
  hf = config.to_hf()  # raises before anything is written
  folder.mkdir(parents=True, exist_ok=True)
  st.write_sharded(
    folder, pending, jnp.dtype(config.param_dtype), max_shard_bytes
  )
  if tokenizer is not None:
    readings.copy(tokenizer, folder)
    check_tokenizer(folder, config)
  generation = {
    k: hf[k]
    for k in ('bos_token_id', 'eos_token_id', 'pad_token_id')
    if hf[k] is not None
  }
  generation |= {'do_sample': True, 'temperature': temperature, 'top_p': 1.0}
  generation |= {'top_k': 0}
  _write_json(folder / 'generation_config.json', generation)
  # Last, so that a folder with a config.json is a whole one.
  _write_json(folder / 'config.json', hf)
  return folder


def hf_tensors(
  config: ModelConfig, params: nnx.State, *, tied_head: bool = False
) -> list[st.Pending]:
  """Every tensor under its Hugging Face name, in the order of layers.

  Adapters are merged. `tied_head`: the output head, too, where it is the
  embedding, for a reader that keeps a copy of it.
  """
  if config.lora_rank:
    from jaxagent.models import lora

    config, _, params = lora.merge_lora(config, params)
  leaves = {tuple(k): v for k, v in nnx.to_flat_state(params)}
  tensors = [
    st.Pending(name, w.hf_shape, *_slice_of(leaves[w.path], w, i))
    for w in weight_table(config)
    for i, name in enumerate(w.names)
  ]
  if tied_head and config.tie_word_embeddings:
    (table,) = (t for t in tensors if t.name == _TOP['embed',])
    tensors.append(dataclasses.replace(table, name=_TOP['lm_head',]))
  return tensors


def write_config(
  folder: pathlib.Path,
  config: ModelConfig,
  *,
  stages: Sequence[str] = (),
  base: str = '',
) -> None:
  """`config.json` and, beside it, how we run the model.

  stages, base: of a model with adapters, the stages that train them and the folder
  that training begins from.
  """
  folder.mkdir(parents=True, exist_ok=True)
  _write_json(folder / 'config.json', config.to_hf())
  run: dict[str, Any] = {
    'scan_layers': config.scan_layers,
    'param_dtype': config.param_dtype,
  }
  if config.lora_rank:
    run['adapters'] = {
      'rank': config.lora_rank,
      'alpha': config.lora_alpha,
      'targets': list(config.lora_targets),
      'stages': list(stages),
      'base': base,
    }
  _write_json(folder / RUN_FILE, run)


def read_config(folder: pathlib.Path) -> ModelConfig:
  """Reads what `write_config` wrote, adapters too.

  FileNotFoundError names the remedy.
  """
  run = _read_run(folder)
  if has := run.pop('adapters', None):
    run |= {
      'lora_rank': has['rank'],
      'lora_alpha': has['alpha'],
      'lora_targets': tuple(has['targets']),
    }
  return ModelConfig.from_hf(folder, **run)


def read_adapters(folder: pathlib.Path) -> dict[str, Any]:
  """Returns what `write_config` noted of adapters: stages, base, ...; {} without."""
  return _read_run(folder).get('adapters', {})


def _read_run(folder: pathlib.Path) -> dict[str, Any]:
  file = folder / RUN_FILE
  if not file.is_file():
    raise FileNotFoundError(
      f'no {file}: give a folder that `import` wrote or the work directory of '
      'a run.'
    )
  return model_files.read_json(file)


def _write_json(file: pathlib.Path, value: Any) -> None:
  file.write_text(json.dumps(value, indent=2, sort_keys=True) + '\n')


def _natural(part: Any) -> tuple[int, str]:
  return (part, '') if isinstance(part, int) else (-1, str(part))


def _same_bytes(files: Any, a: str, b: str) -> bool:
  if b not in files or files[a].shape != files[b].shape:
    return False
  return bool(np.array_equal(files[a].read(), files[b].read()))


def _load_weight(weight: Any, files: Any, sharding_of: Any):
  """One weight, each device's slice read on its own."""
  sharding = sharding_of(weight.path, weight.shape) if sharding_of else None
  if sharding is None:
    sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
  on_host = next(iter(sharding.device_set)).platform == 'cpu'
  parts: dict[tuple, np.ndarray] = {}

  def read(index: Any) -> np.ndarray:
    key = tuple(part.indices(size) for part, size in zip(index, weight.shape))
    # Devices that hold the same are sent the same bytes; on the CPU an array can be
    # the memory that it is given, and each needs its own.
    if on_host or key not in parts:
      parts[key] = _read_part(weight, files, index)
    return parts[key]

  return jax.make_array_from_callback(weight.shape, sharding, read)


def _read_part(weight: Any, files: Any, index: tuple[slice, ...]) -> np.ndarray:
  """A part of a weight; of a scanned one, layer by layer into its place.

  Always a copy: on the CPU an array can be the memory that it is given, and the
  file that is mapped there may be written over.
  """
  shape = [len(range(*s.indices(n))) for s, n in zip(index, weight.shape)]
  out = np.empty(shape, weight.dtype)
  names = weight.names[index[0]] if weight.stacked else weight.names
  rest = index[1:] if weight.stacked else index
  for i, name in enumerate(names):
    whole = files[name].read()
    part = whole[rest[::-1]] if weight.transpose else whole[rest]
    if not st.is_finite(part):
      raise _not_finite(files[name], name)
    place = out[i] if weight.stacked else out
    copies.copy(place, part.T if weight.transpose else part)
  return out


def _slice_of(leaf: Any, weight: Any, i: int):
  """Two loaders of HF tensor `i` of a weight: to the host, and where it is."""

  def own() -> jax.Array:
    return leaf[...][i] if weight.stacked else leaf[...]

  def load() -> np.ndarray:
    value = np.asarray(jax.device_get(own()))
    return value.T if weight.transpose else value

  def array() -> jax.Array:
    return own().T if weight.transpose else own()

  return load, array
