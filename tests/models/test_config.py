"""Reading config.json: both rope forms, and everything that must stop."""

from __future__ import annotations

import pytest

from jaxagent.models import ModelConfig
from tests.models.conftest import make_config


def _raw(family='qwen2', **changes):
  raw = make_config(family).to_hf()
  raw.update(changes)
  return {k: v for k, v in raw.items() if v != 'DROP'}


def test_old_and_new_rope_form():
  old = _raw(rope_parameters='DROP', rope_theta=123.0, rope_scaling=None)
  new = _raw(
    rope_theta='DROP',
    rope_parameters={'rope_type': 'default', 'rope_theta': 123.0},
  )
  assert ModelConfig.from_hf(old).rope_theta == 123.0
  assert ModelConfig.from_hf(new) == ModelConfig.from_hf(old)


DEFAULT = {'rope_type': 'default'}
ROPES = (
  {},
  {'rope_theta': 5e5},
  {'rope_parameters': DEFAULT | {'rope_theta': 7e5}},
  {'rope_theta': 5e5, 'rope_parameters': DEFAULT | {'rope_theta': 7e5}},
  {'rope_theta': 5e5, 'rope_parameters': DEFAULT},
  {'rope_theta': 5e5, 'rope_parameters': {}, 'rope_scaling': None},
  {'rope_theta': 5e5, 'rope_parameters': None, 'rope_scaling': {}},
  {'rope_theta': 5e5, 'rope_scaling': {'type': 'default'}},
  {'rope_theta': 5e5, 'rope_scaling': DEFAULT | {'rope_theta': 9e5}},
  {'rope_parameters': DEFAULT | {'rope_theta': 7e5}, 'rope_scaling': {}},
  {'rope_parameters': DEFAULT | {'rope_theta': 7e5}, 'rope_scaling': DEFAULT},
  {
    'rope_theta': 5e5,
    'rope_parameters': DEFAULT | {'rope_theta': 7e5},
    'rope_scaling': DEFAULT,
  },
  {
    'rope_theta': 5e5,
    'rope_parameters': DEFAULT | {'rope_theta': 7e5},
    'rope_scaling': {'type': 'default', 'rope_theta': 9e5},
  },
  {
    'rope_parameters': {
      'rope_type': 'linear',
      'factor': 2.0,
      'rope_theta': 7e5,
    },
    'rope_scaling': DEFAULT | {'rope_theta': 9e5},
  },
)


@pytest.mark.parametrize('family', ('qwen2', 'qwen3'))
@pytest.mark.parametrize('rope', ROPES)
def test_the_rotary_base_is_that_of_transformers(family, rope):
  transformers = pytest.importorskip('transformers', '5.0')
  raw = _raw(family, rope_theta='DROP', rope_parameters='DROP') | rope
  theirs = transformers.AutoConfig.for_model(**raw)
  want = theirs.rope_parameters['rope_theta']
  assert ModelConfig.from_hf(raw).rope_theta == want


@pytest.mark.parametrize(
  'rope',
  (
    {'rope_theta': None, 'rope_parameters': 'DROP'},
    {'rope_parameters': DEFAULT | {'rope_theta': None}},
    {'rope_theta': '1e6', 'rope_parameters': 'DROP'},
    {'rope_theta': 0, 'rope_parameters': 'DROP'},
    {'rope_theta': True, 'rope_parameters': 'DROP'},
  ),
)
def test_a_rotary_base_that_is_none_is_refused(rope):
  with pytest.raises(
    ValueError, match='rope_theta=.* must be a number above 0'
  ):
    ModelConfig.from_hf(_raw(**rope))


def test_a_scaling_that_counts_is_refused_whatever_stands_beside_it():
  linear = {'rope_type': 'linear', 'factor': 2.0}
  with pytest.raises(ValueError, match='not implemented: rope_scaling'):
    ModelConfig.from_hf(_raw(rope_scaling=linear))


def test_who_made_a_file_and_how_to_draw_change_nothing():
  """Keys of transformers 4's generation, and those that other tools leave."""
  told = {
    'unsloth_version': '2025.3.19', 'unsloth_fixed': True, 'trl_version': '0.9',
    'do_sample': True, 'temperature': 0.7, 'top_p': 0.8, 'top_k': 20,
    'repetition_penalty': 1.05, 'num_beams': 1, 'num_beam_groups': 1,
    'diversity_penalty': 0.0, 'length_penalty': 1.0, 'min_length': 0,
    'num_return_sequences': 1, 'typical_p': 1.0, 'max_length': 20,
    'early_stopping': True, 'no_repeat_ngram_size': 3, 'bad_words_ids': [[5]],
    'suppress_tokens': [1], 'begin_suppress_tokens': [2], 'is_decoder': True,
    'return_dict_in_generate': True, 'output_scores': True, 'torchscript': True,
    'remove_invalid_values': True, 'forced_eos_token_id': 3, 'use_bfloat16': True,
    'exponential_decay_length_penalty': [5, 1.1], '_unsloth_note': 'x',
  }  # fmt: skip
  assert ModelConfig.from_hf(_raw(**told)) == ModelConfig.from_hf(_raw())


@pytest.mark.parametrize(
  'change, name',
  [
    ({'rope_scaling': {'type': 'yarn', 'factor': 4.0}}, 'yarn'),
    (
      {'rope_parameters': {'rope_type': 'linear', 'factor': 2.0}},
      'rope_parameters',
    ),
    ({'hidden_act': 'gelu'}, 'hidden_act'),
    ({'use_sliding_window': True}, 'use_sliding_window'),
    ({'layer_types': ['sliding_attention']}, 'sliding_attention'),
    ({'attention_dropout': 0.1}, 'attention_dropout'),
    ({'quantization_config': {'bits': 4}}, 'quantization_config'),
    ({'num_experts': 8}, 'num_experts'),
    ({'model_type': 'llama'}, 'llama'),
    ({'hidden_size': 'DROP'}, 'hidden_size'),
    ({'num_key_value_heads': 3}, 'num_key_value_heads'),
    ({'head_dim': 15}, 'head_dim'),
  ],
)
def test_what_is_not_implemented_stops_with_its_name(change, name):
  with pytest.raises(ValueError, match=name):
    ModelConfig.from_hf(_raw(**change))


def test_no_folder_and_no_json(tmp_path):
  with pytest.raises(FileNotFoundError, match='config.json'):
    ModelConfig.from_hf(tmp_path)
  (tmp_path / 'config.json').write_text('{"model_type": ')
  with pytest.raises(ValueError, match='not JSON'):
    ModelConfig.from_hf(tmp_path)


def test_parameters_of_the_papers_models():
  """Hand-checked against the published sizes (Qwen2.5-7B: 7.6B weights)."""
  qwen7b = ModelConfig(
    vocab_size=152064,
    hidden_size=3584,
    intermediate_size=18944,
    num_hidden_layers=28,
    num_attention_heads=28,
    num_key_value_heads=4,
    head_dim=128,
    tie_word_embeddings=False,
  )
  assert qwen7b.num_params() == 7_615_616_512
