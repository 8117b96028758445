"""Text models that take part: who instruments, who helps, what a prompt takes."""

from __future__ import annotations

import socket
import time
import types as stubs

import pytest

from jaxagent.runtime import text_models


def _config(
  kind: str, url: str = 'http://127.0.0.1:9/v1', timeout_s: float = 5.0
):
  options = stubs.SimpleNamespace(
    kind=kind, base_url=url, model='m', max_tokens=64, timeout_s=timeout_s,
    temperature=0.0, extra={}, max_concurrency=2,
  )  # fmt: skip
  return Config(instrumenter=options)


class Config(stubs.SimpleNamespace):
  """Roles by attribute and by name, as a ConfigDict has them."""

  def __getitem__(self, name):
    return getattr(self, name)


@pytest.fixture
def mute():
  """The address of a server that accepts and never says anything."""
  with socket.create_server(('127.0.0.1', 0)) as server:
    yield f'http://127.0.0.1:{server.getsockname()[1]}/v1'


def test_an_instrumenter_that_is_down_gives_an_empty_answer(tmp_path):
  ask = text_models.make_instrumenter(_config('openai'), tmp_path)
  assert [ask(one).text for one in ('one', 'two')] == ['', '']


def test_an_instrumenter_that_hangs_does_not_hold_up_the_run(
  tmp_path, mute, monkeypatch
):
  """Each question ends in time, and after some failures none is asked."""
  monkeypatch.setattr(text_models.Instrumenter, 'PATIENCE', 2)
  ask = text_models.make_instrumenter(_config('openai', mute, 0.2), tmp_path)
  began = time.monotonic()
  assert [ask('question').text for _ in range(2)] == ['', '']
  first = time.monotonic() - began
  assert 0.4 <= first < 10
  began = time.monotonic()
  assert [ask('question').text for _ in range(80)] == [''] * 80
  assert time.monotonic() - began < 0.4
  monkeypatch.setattr(ask, '_rests_until', 0.0)  # its rest is over
  assert ask('question').text == ''
  assert ask._failures == 1


@pytest.mark.parametrize('kind', ['syntax', 'verified', 'none'])
def test_no_model_is_asked(tmp_path, kind):
  assert text_models.make_instrumenter(_config(kind), tmp_path) is None


def test_without_terminal_input_the_answer_is_that_there_is_no_help(
  monkeypatch, capsys
):
  env = stubs.SimpleNamespace(help='person')
  person = text_models.make_helper(stubs.SimpleNamespace(env=env))
  monkeypatch.setattr('builtins.input', lambda asked: f'about {asked[:9]}')
  assert person.answer('what now?') == 'about The agent'

  def gone(asked):
    raise EOFError

  monkeypatch.setattr('builtins.input', gone)
  env.help = 'none'
  nobody = text_models.make_helper(stubs.SimpleNamespace(env=env))
  assert person.answer('what now?') == nobody.answer('what now?')


@pytest.mark.parametrize(
  'text, tokens',
  [
    ('', 0),
    ('x = model', 3),
    ('5.1,3.5\n', 8),
    ('12345', 5),
    ('\u6a21\u578b', 2),
    ('a1', 2),
    ('\ud83d', 1),
  ],
)
def test_digits_count_alone_and_all_else_by_its_bytes(text, tokens):
  assert text_models.tokens_of(text) == tokens
