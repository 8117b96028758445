"""Config of a model: Hugging Face's `config.json` names, and options of running it.

Only the dense Qwen2/2.5 and Qwen3 families are implemented. Anything in a
`config.json` that would change the result and is not implemented stops with
its name, so that no model is ever read half.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from jaxagent.files import model_files

MODEL_TYPES = ('qwen2', 'qwen3')
REMAT = ('none', 'full', 'dots', 'dots_no_batch', 'attention')
DTYPES = ('float32', 'bfloat16')
# Kernels of a layer that may have adapters.
LORA_TARGETS = ('q', 'k', 'v', 'o', 'gate', 'up', 'down')
# Of attention, `jaxagent.models.attention`.
KERNELS = ('auto', 'blocks', 'mapped', 'xla', 'cudnn', 'splash')

_ARCHITECTURES = {
  'qwen2': 'Qwen2ForCausalLM',
  'qwen3': 'Qwen3ForCausalLM',
}

# Keys that change nothing in the forward pass, whatever their value.
_INERT = frozenset(
  """_name_or_path architectures auto_map bos_token_id chunk_size_feed_forward
  decoder_start_token_id dtype eos_token_id finetuning_task id2label
  initializer_range is_decoder keys_to_ignore_at_inference label2id
  max_window_layers model_type name_or_path num_labels output_attentions
  output_hidden_states pad_token pad_token_id prefix problem_type
  return_dict sep_token_id sliding_window task_specific_params tokenizer_class
  torch_dtype torchscript unsloth_fixed use_bfloat16 use_cache""".split()
)
# How `generate` draws by default; transformers 4 writes what
# is not its default into config.json.
_GENERATION = frozenset(
  """bad_words_ids begin_suppress_tokens diversity_penalty do_sample
  early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty
  forced_bos_token_id forced_eos_token_id length_penalty max_length
  max_new_tokens min_length min_new_tokens min_p no_repeat_ngram_size
  num_beam_groups num_beams num_return_sequences output_logits output_scores
  remove_invalid_values repetition_penalty return_dict_in_generate
  suppress_tokens temperature top_k top_p typical_p""".split()
)
# Keys that must hold one of these values, or be absent or null.
_FIXED: Mapping[str, tuple[Any, ...]] = {
  'hidden_act': ('silu',),
  'use_sliding_window': (False,),
  'attention_dropout': (0, 0.0),
  'mlp_bias': (False,),
  'is_encoder_decoder': (False,),
  'add_cross_attention': (False,),
  'partial_rotary_factor': (1, 1.0),
  'use_mrope': (False,),
}
_READ = frozenset(
  """vocab_size hidden_size intermediate_size num_hidden_layers
  num_attention_heads num_key_value_heads head_dim rms_norm_eps rope_theta
  rope_scaling rope_parameters tie_word_embeddings attention_bias
  max_position_embeddings layer_types""".split()
)
_REQUIRED = (
  'vocab_size',
  'hidden_size',
  'intermediate_size',
  'num_hidden_layers',
  'num_attention_heads',
)


@dataclasses.dataclass(frozen=True)
class ModelConfig:
  """A decoder's shape (HF names) and run options. Hashable, so jit-static.

  `attention_bias`: bias on q, k, v (and on o for qwen3, as HF does).
  `qk_norm`: RMSNorm of each query and key head (qwen3).
  `scan_layers`: one compiled layer scanned (pays on accelerators) or all
  unrolled (11-24 % faster on the CPU).
  `dtype`: of the computation; `param_dtype`: of the stored weights, but for
  adapters, which are float32.
  """

  vocab_size: int
  hidden_size: int
  intermediate_size: int
  num_hidden_layers: int
  num_attention_heads: int
  num_key_value_heads: int
  head_dim: int
  model_type: str = 'qwen2'
  rms_norm_eps: float = 1e-6
  rope_theta: float = 10_000.0
  tie_word_embeddings: bool = True
  attention_bias: bool = True
  qk_norm: bool = False
  max_position_embeddings: int = 4096
  initializer_range: float = 0.02
  bos_token_id: int | None = None
  eos_token_id: int | tuple[int, ...] | None = None
  pad_token_id: int | None = None
  # Run options: not part of config.json.
  scan_layers: bool = False
  remat: str = 'none'
  dtype: str = 'float32'
  param_dtype: str = 'float32'
  attention: str = 'auto'
  lora_rank: int = 0
  lora_alpha: float = 64.0
  lora_targets: tuple[str, ...] = LORA_TARGETS

  def __post_init__(self):
    _one_of('model_type', self.model_type, MODEL_TYPES)
    _one_of('remat', self.remat, REMAT)
    _one_of('dtype', self.dtype, DTYPES)
    _one_of('param_dtype', self.param_dtype, DTYPES)
    for name in (*_REQUIRED, 'num_key_value_heads', 'head_dim'):
      value = getattr(self, name)
      if not (isinstance(value, int) and value > 0):
        raise ValueError(f'{name}={value!r} must be a positive integer.')
    if self.num_attention_heads % self.num_key_value_heads:
      raise ValueError(
        f'num_attention_heads={self.num_attention_heads} must be a multiple '
        f'of num_key_value_heads={self.num_key_value_heads}.'
      )
    if self.head_dim % 2:
      raise ValueError(f'head_dim={self.head_dim} must be even (RoPE).')
    if self.lora_rank < 0:
      raise ValueError(f'lora_rank={self.lora_rank} must be >= 0.')

  @classmethod
  def from_hf(
    cls, source: Mapping[str, Any] | str | pathlib.Path, **run_options: Any
  ) -> ModelConfig:
    """Reads a `config.json` (dict, file or folder), old or new rope form.

    `run_options` set fields such as `dtype` or `scan_layers`.
    Raises ValueError naming whatever is missing or not implemented.
    """
    raw, where = _load(source)
    kind = raw.get('model_type')
    _one_of(f'{where}: model_type', kind, MODEL_TYPES)
    missing = [name for name in _REQUIRED if raw.get(name) is None]
    if missing:
      raise ValueError(
        f'{where}: missing {missing}; is it a whole config.json?'
      )
    _refuse_unimplemented(raw, where)
    heads = raw['num_attention_heads']
    head_dim = raw.get('head_dim') or (
      128 if kind == 'qwen3' else raw['hidden_size'] // heads
    )
    eos = raw.get('eos_token_id')
    values = dict(
      model_type=kind,
      head_dim=head_dim,
      num_key_value_heads=raw.get('num_key_value_heads') or heads,
      rms_norm_eps=raw.get('rms_norm_eps', 1e-6),
      rope_theta=_rope_theta(raw, where),
      tie_word_embeddings=bool(raw.get('tie_word_embeddings', False)),
      # Qwen2 has q, k, v biases without saying so in its config.
      attention_bias=(
        True if kind == 'qwen2' else bool(raw.get('attention_bias', False))
      ),
      qk_norm=kind == 'qwen3',
      max_position_embeddings=raw.get('max_position_embeddings', 32768),
      initializer_range=raw.get('initializer_range', 0.02),
      bos_token_id=raw.get('bos_token_id'),
      eos_token_id=tuple(eos) if isinstance(eos, list) else eos,
      pad_token_id=raw.get('pad_token_id'),
      **{name: raw[name] for name in _REQUIRED},
    )
    return cls(**{**values, **run_options})

  def to_hf(self) -> dict[str, Any]:
    """The `config.json` that `transformers` 4 and 5 both read."""
    if self.qk_norm != (self.model_type == 'qwen3'):
      raise ValueError(
        f'qk_norm={self.qk_norm} cannot be written as {self.model_type}: use '
        "model_type='qwen3' for q/k norms and 'qwen2' without."
      )
    if self.model_type == 'qwen2' and not self.attention_bias:
      raise ValueError(
        'attention_bias=False cannot be written as qwen2, whose q, k, v always '
        "have biases: use model_type='qwen3'."
      )
    eos = self.eos_token_id
    config = {
      'architectures': [_ARCHITECTURES[self.model_type]],
      'model_type': self.model_type,
      'hidden_act': 'silu',
      'use_sliding_window': False,
      'sliding_window': None,
      'max_window_layers': self.num_hidden_layers,
      'attention_dropout': 0.0,
      'use_cache': True,
      'rope_theta': self.rope_theta,
      'rope_parameters': {
        'rope_theta': self.rope_theta,
        'rope_type': 'default',
      },
      'torch_dtype': self.param_dtype,
      'bos_token_id': self.bos_token_id,
      'eos_token_id': list(eos) if isinstance(eos, tuple) else eos,
      'pad_token_id': self.pad_token_id,
      'num_key_value_heads': self.num_key_value_heads,
      'head_dim': self.head_dim,
      'rms_norm_eps': self.rms_norm_eps,
      'tie_word_embeddings': self.tie_word_embeddings,
      'max_position_embeddings': self.max_position_embeddings,
      'initializer_range': self.initializer_range,
      **{name: getattr(self, name) for name in _REQUIRED},
    }
    if self.model_type == 'qwen3':
      config['attention_bias'] = self.attention_bias
    return config

  @property
  def output_bias(self) -> bool:
    """Whether the attention's output projection has a bias (qwen3 only)."""
    return self.attention_bias and self.model_type == 'qwen3'

  def replace(self, **changes: Any) -> ModelConfig:
    """A copy with `changes`."""
    return dataclasses.replace(self, **changes)

  def num_params(self) -> int:
    """Weights of the decoder, adapters not counted."""
    d, f, h = self.hidden_size, self.intermediate_size, self.head_dim
    q, kv = self.num_attention_heads * h, self.num_key_value_heads * h
    layer = 2 * d * q + 2 * d * kv + 3 * d * f + 2 * d
    layer += (q + 2 * kv) if self.attention_bias else 0
    layer += d if self.output_bias else 0
    layer += 2 * h if self.qk_norm else 0
    tables = 1 if self.tie_word_embeddings else 2
    return self.num_hidden_layers * layer + tables * self.vocab_size * d + d


def _one_of(name: str, value: Any, choices: tuple[str, ...]) -> None:
  if value not in choices:
    raise ValueError(f'{name}={value!r} is not implemented; choose {choices}.')


def _load(source) -> tuple[dict[str, Any], str]:
  if isinstance(source, Mapping):
    return dict(source), 'config'
  path = pathlib.Path(source)
  if path.is_dir():
    path = path / 'config.json'
  if not path.is_file():
    raise FileNotFoundError(
      f'no {path}: a model folder holds config.json and *.safetensors.'
    )
  return model_files.read_json(path), str(path)


def _is_inert(key: str) -> bool:
  """Whether a key changes no forward pass: who made the file, how to draw."""
  named = key in _INERT or key in _GENERATION
  return named or key.startswith('_') or key.endswith('_version')


def _refuse_unimplemented(raw: Mapping[str, Any], where: str) -> None:
  bad = []
  for key, value in raw.items():
    if key in _READ or _is_inert(key):
      continue
    if key in _FIXED:
      if value is not None and value not in _FIXED[key]:
        bad.append(f'{key}={value!r} (only {_FIXED[key][0]!r})')
    # A null, false or empty value switches its feature off.
    elif value not in (None, False, {}, [], ''):
      bad.append(f'{key}={value!r}')
  layers = raw.get('layer_types') or []
  other = sorted(set(layers) - {'full_attention'})
  if other:
    bad.append(f'layer_types={other} (only full_attention)')
  if bad:
    raise ValueError(f'{where}: not implemented: ' + ', '.join(bad) + '.')


def _rope_theta(raw: Mapping[str, Any], where: str) -> float:
  """The rotary base that `transformers` 5.24 takes.

  Measured: `rope_scaling` where it is not empty, else `rope_parameters`; the
  other one is not looked at. `rope_theta` of the top counts where the one that
  is taken names none. (4.x takes that of the top alone.)
  """
  name = 'rope_scaling' if raw.get('rope_scaling') else 'rope_parameters'
  rope = raw.get(name) or {}
  if not isinstance(rope, Mapping):
    raise ValueError(f'{where}: {name}={rope!r} must be an object.')
  kind = rope.get('rope_type', rope.get('type', 'default'))
  extra = {
    k: v
    for k, v in rope.items()
    if k not in ('rope_type', 'type', 'rope_theta')
    and not (k == 'partial_rotary_factor' and v == 1)
  }
  if kind != 'default' or extra:
    raise ValueError(
      f"{where}: not implemented: {name}={rope!r} (only rope_type 'default')."
    )
  theta = rope.get('rope_theta', raw.get('rope_theta', 10_000.0))
  if (
    isinstance(theta, bool) or not isinstance(theta, (int, float)) or theta <= 0
  ):
    raise ValueError(f'{where}: rope_theta={theta!r} must be a number above 0.')
  return float(theta)
