"""A policy whose chat template opens thoughts, named before any work."""

from __future__ import annotations

import json

import pytest

from configs import common
from jaxagent.config import settings, templates
from jaxagent.errors import UserError
from jaxagent.testing import small_hf
from tests.data.test_chat import OFF, THINKING

ALWAYS = THINKING.replace('enable_thinking is defined and', 'false and')


@pytest.fixture(scope='module')
def model(tmp_path_factory):
  return small_hf.make(
    tmp_path_factory.mktemp('hf') / 'model', vocab_size=600, hidden_size=16
  )


def _config(model, template):
  file = model / 'tokenizer_config.json'
  raw = json.loads(file.read_text())
  file.write_text(json.dumps(raw | {'chat_template': template}))
  config = common.base()
  config.model.path = str(model)
  config.rollout.max_prompt_tokens, config.rollout.max_new_tokens = 700, 64
  return config


def test_the_refusal_names_the_switch_that_closes_the_thoughts(model):
  config = _config(model, THINKING)
  with pytest.raises(
    UserError, match=r"opens <think> .*kwargs=\"\{'enable_thinking'"
  ):
    settings.validate(config)
  config.rollout.chat_template_kwargs = OFF
  settings.validate(config)
  assert templates.load(config, str(model)).opens_thoughts == ''
  config.rollout.chat_template_kwargs = str(OFF)
  assert (
    settings.config_record(config)['rollout']['chat_template_kwargs'] == OFF
  )


def test_without_a_switch_another_template_is_the_remedy(model, caplog):
  config = _config(model, ALWAYS)
  with pytest.raises(UserError, match='No switch .*tokenizer.path=DIR'):
    settings.validate(config)
  config.env.parse_mode = 'mlagentbench'  # which skips what stands before
  settings.validate(config)
  assert 'opens <think>' in caplog.text


@pytest.mark.parametrize(
  'given, says',
  [
    ('x', 'neither JSON'),
    ({'tools': []}, 'set by the run itself'),
    ({'enable_thinkin': False}, "no chat template that reads 'enable_thinkin'"),
  ],
)
def test_what_a_template_cannot_be_given(model, given, says):
  config = _config(model, THINKING)
  config.rollout.chat_template_kwargs = given
  with pytest.raises(UserError, match=says):
    settings.validate(config)


def test_a_run_that_trains_its_tokenizer_has_no_template():
  config = common.base()
  config.rollout.chat_template_kwargs = OFF
  with pytest.raises(UserError, match='trains has none; leave it out'):
    settings.validate(config)
