"""Conversations of a file as rows for SFT."""

import types as stubs

import numpy as np
import pytest

from configs import common
from jaxagent import types
from jaxagent.data import bpe, conversations
from jaxagent.data.conversations import Conversation
from jaxagent.errors import UserError
from jaxagent.recipes import sft_data
from tests import made

FOUND = [
  Conversation('ask', 'answer'),
  Conversation('ask' * 50, 'answer'),
  Conversation('ask', 'answer' * 50),
  Conversation('ask', 'answer'),
]


def _policy(room=40):
  return stubs.SimpleNamespace(
    tokenizer=bpe.train(['x'], 259),
    max_prompt_tokens=room,
    sampling=stubs.SimpleNamespace(max_new_tokens=40),
  )


def _config(path, **changes):
  config = common.base()
  config.sft.conversations = str(path)
  config.sft.update(changes)
  return config


def test_conversations_that_do_not_fit_are_left_out_and_counted(capsys):
  policy = _policy()
  rows = sft_data.rows_of_imported(FOUND, policy)
  assert len(rows) == 2
  assert '2 of 4 conversations are left out' in capsys.readouterr().out
  tokens, mask = rows[0]
  prompt = policy.tokenizer.encode_prompt('ask')
  answer = policy.tokenizer.encode_response('answer')
  np.testing.assert_array_equal(tokens, [*prompt, *answer])
  np.testing.assert_array_equal(mask, np.arange(len(tokens)) >= len(prompt))


def test_conversations_of_which_none_fits_are_refused_with_the_limits():
  with pytest.raises(UserError, match='max_prompt_tokens=2, max_new_tokens=40'):
    sft_data.rows_of_imported(FOUND, _policy(room=2))


STATE = types.State('s', 'wine', {}, 0.5, 0.5)


def _steps(*responses):
  steps = (made.taken(made.step(response=r), state='key') for r in responses)
  return [made.collected(*steps)]


def _host(**changes):
  store = stubs.SimpleNamespace(get={'key': STATE}.__getitem__)
  config = _config('', **changes)
  return stubs.SimpleNamespace(
    config=config, env=stubs.SimpleNamespace(store=store)
  )


def test_expert_steps_that_do_not_fit_are_left_out_and_counted(capsys):
  policy = _policy()
  policy.prompt_ids = lambda state: np.zeros(3, np.int32)
  rows = sft_data.rows_of_steps(_host(), _steps('short', 'long' * 50), policy)
  assert len(rows) == 1
  assert '1 of 2 steps of the experts are left out' in capsys.readouterr().out
  twice = _steps('short', 'short')
  assert (
    len(sft_data.rows_of_steps(_host(deduplicate=True), twice, policy)) == 1
  )


@pytest.mark.parametrize('responses', [('long' * 50,), ()])
def test_nothing_to_learn_from_the_experts_is_refused(responses):
  policy = _policy()
  policy.prompt_ids = lambda state: np.zeros(3, np.int32)
  with pytest.raises(
    UserError,
    match=r'experts.*sft.steps=ran.*: 0 of [01] steps of the experts fit within',
  ):
    sft_data.rows_of_steps(_host(), _steps(*responses), policy)
  assert (
    sft_data.rows_of_steps(_host(epochs=0), _steps(*responses), policy) == []
  )


def test_conversations_are_read_once_each_and_a_damaged_file_is_refused(
  tmp_path,
):
  path = tmp_path / 'a.json'
  conversations.write(path, FOUND)
  assert sft_data.imported(_config('')) == []
  assert sft_data.imported(_config(path)) == FOUND
  assert sft_data.imported(_config(path, deduplicate=True)) == FOUND[:3]
  path.write_text('{')
  with pytest.raises(UserError, match='config.sft.conversations: .*no JSON'):
    sft_data.imported(_config(path))
