"""Options of the model, its tokenizer and how it lies on devices."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxagent.models.config import DTYPES, KERNELS, LORA_TARGETS, REMAT
from jaxagent.options import Section, option, relation


@dataclasses.dataclass(frozen=True)
class TokenizerOptions(Section):
  """Tokenizer of the policy: a given one, or one that the run trains."""

  path: str = option(
    '',
    is_path=True,
    help="Hugging Face folder; '': the model's own where model.path names one, "
    "else one trained on the run's corpus.",
  )
  vocab_size: int = option(
    1024,
    unit='entries',
    least=259,  # all bytes and three specials
    help='Size of a tokenizer that the run trains.',
    advanced=True,
  )


@dataclasses.dataclass(frozen=True)
class ModelOptions(Section):
  """Model that is trained, and how it is computed."""

  path: str = option(
    '',
    is_path=True,
    help="Hugging Face folder; '': model.hf, randomly initialised.",
  )
  dtype: str = option(
    'float32', choices=DTYPES, help='Precision of the computation.'
  )
  scan_layers: bool = option(
    False, help='Compile one layer and scan over all of them.'
  )
  remat: str = option(
    'none',
    choices=REMAT,
    help='What the backward pass computes again; attention: all but its '
    'output.',
  )
  attention: str = option(
    'auto',
    choices=KERNELS,
    help='Kernel of attention; auto: by device and length.',
    advanced=True,
  )

  relations = (
    relation(
      'attention',
      'dtype',
      holds=lambda kernel, dtype: kernel != 'cudnn' or dtype == 'bfloat16',
      say="{at}attention='cudnn' needs {at}dtype='bfloat16', not {dtype!r}; "
      "set that, or {at}attention='auto'.",
    ),
  )


@dataclasses.dataclass(frozen=True)
class LoraOptions(Section):
  """Low-rank adapters, trained in place of the weights of the model."""

  rank: int = option(
    0, least=0, help='Rank of the adapters; 0: all weights are trained.'
  )
  alpha: float = option(
    64.0, above=0, help='What an adapter adds is scaled by this over its rank.'
  )
  targets: tuple[str, ...] = option(
    LORA_TARGETS,
    choices=LORA_TARGETS,
    help='Products of a layer that have adapters.',
    advanced=True,
  )
  path: str = option(
    '',
    is_path=True,
    help="PEFT folder whose adapters training begins with; '': fresh ones.",
    advanced=True,
  )
  stages: tuple[str, ...] = option(
    ('sft', 'rl'),
    choices=('sft', 'rl'),
    help="Stages that train adapters; ('rl',): SFT trains all weights, on which "
    'RL then trains adapters.',
    advanced=True,
  )

  relations = (
    relation(
      'rank',
      'targets',
      holds=lambda rank, targets: not rank or targets,
      say='{at}targets={targets!r} has no kernel for the adapters of '
      '{at}rank={rank}; name one of: ' + ', '.join(LORA_TARGETS) + '.',
    ),
    relation(
      'rank',
      'stages',
      holds=lambda rank, stages: not rank or 'rl' in stages,
      say="{at}stages={stages!r} has no 'rl': to train all weights after adapters "
      "is not implemented; choose ('sft', 'rl') or ('rl',).",
    ),
    relation(
      'path',
      'rank',
      holds=lambda path, rank: not path or rank,
      say='{at}path={path!r} has adapters, and {at}rank={rank} trains none; set '
      'the rank that its adapter_config.json names.',
    ),
    relation(
      'path',
      'stages',
      holds=lambda path, stages: not path or 'sft' in stages,
      say='{at}path={path!r} has adapters of the model as it is, which a full SFT '
      "({at}stages={stages!r}) changes; add 'sft' to the stages.",
    ),
  )


@dataclasses.dataclass(frozen=True)
class HfOptions(Section):
  """A Hugging Face config.json, used where model.path is ''.

  What `ModelConfig.from_hf` reads beyond these keys may stand there, too.
  """

  is_open = True

  model_type: str = option(
    'qwen2',
    help='Architecture: qwen2 or qwen3.',
    advanced=True,
  )
  hidden_size: int = option(128, help='Width of the residual stream.')
  intermediate_size: int = option(384, help='Width of the MLP.')
  num_hidden_layers: int = option(3, help='Number of layers.')
  num_attention_heads: int = option(4, help='Heads of queries.')
  num_key_value_heads: int = option(
    2, help='Heads of keys and values.', optional=True
  )
  max_position_embeddings: int = option(
    1024, unit='tokens', help='Longest text.'
  )
  rms_norm_eps: float = option(
    1e-6,
    above=0,
    help='Added to the mean square in RMSNorm.',
    optional=True,
    advanced=True,
  )
  rope_theta: float = option(
    10000.0, above=0, help='Base of the rotary embedding.', optional=True
  )
  initializer_range: float = option(
    0.02,
    above=0,
    help='Standard deviation of random initialisation.',
    optional=True,
  )
  tie_word_embeddings: bool = option(
    True, help='Use one table for input and output.', optional=True
  )
  vocab_size: Any = option(
    None,
    kind=int,
    unit='entries',
    help="Size of the vocabulary; missing: the tokenizer's, in multiples of "
    '64.',
    optional=True,
  )
  head_dim: Any = option(
    None,
    kind=int,
    help='Width of a head; missing: hidden_size / num_attention_heads.',
    optional=True,
    advanced=True,
  )


@dataclasses.dataclass(frozen=True)
class MeshOptions(Section):
  """Sizes of the axes of the device mesh; their product is the devices used."""

  data: int = option(
    1,
    unit='devices',
    help='Copies of the weights, each for a part of the batch.',
    advanced=True,
  )
  fsdp: int = option(
    1, unit='devices', help='Parts of weights and optimizer, and of the batch.'
  )
  tensor: int = option(
    1,
    unit='devices',
    help='Parts of heads, MLP and vocabulary.',
    advanced=True,
  )
