"""Text models behind a real vLLM server: the one that samples serves them, too."""

from __future__ import annotations

import concurrent.futures

import pytest

from jaxagent.envs.interfaces import TextModelError
from jaxagent.instrumentation import language_model
from jaxagent.llm.base import Unfinished
from jaxagent.llm.client_options import ClientOptions
from jaxagent.llm.openai_client import OpenAIClient
from jaxagent.llm.room import TokenLimit
from jaxagent.rollout.engines.vllm_api import ServerOptions
from jaxagent.rollout.engines.vllm_fleet import LaunchedFleet
from jaxagent.runtime import text_models
from jaxagent.testing import small_hf
from tests.rollout.served import PYTHON, need_vllm

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(300)]
HELLO = [{'role': 'user', 'content': 'def hello():'}]
KEY = 'sk-not-to-be-seen-anywhere'


@pytest.fixture(scope='module')
def fleet(tmp_path_factory):
  need_vllm()
  folder = tmp_path_factory.mktemp('served')
  model = small_hf.make(folder / 'model', hidden_size=128, tied=False)
  made = LaunchedFleet(
    str(PYTHON),
    model,
    folder / 'logs',
    ServerOptions('float32', 1024, 16, 'folder', cpu=True),
  )
  try:
    yield made
  finally:
    made.close()


@pytest.fixture
def url(fleet):
  return f'{fleet.urls[0]}/v1'


def _client(
  url, tmp_path, options=ClientOptions(), limit=TokenLimit(is_measured=True)
) -> OpenAIClient:
  """Takes what the limit cuts: random weights never write an end token in time."""
  return OpenAIClient(url, 'policy', tmp_path / 'cache', options, limit)


def test_answers_are_counted_and_replayed_without_the_server(url, tmp_path):
  with _client(url, tmp_path) as client:
    first = client.complete(HELLO, max_tokens=12)
    spent = client.usage()
  assert first and spent.requests == 1 and not spent.without_usage
  assert 0 < spent.completion_tokens <= 12 < spent.prompt_tokens
  with _client(url, tmp_path) as client:
    assert client.complete(HELLO, max_tokens=12) == first
    assert client.usage().requests == 0 and client.usage().cache_hits == 1


def test_many_at_once(url, tmp_path):
  with (
    _client(url, tmp_path, ClientOptions(max_concurrency=8)) as client,
    concurrent.futures.ThreadPoolExecutor(32) as executor,
  ):
    texts = list(
      executor.map(
        lambda i: client.complete(HELLO, max_tokens=8, temperature=1.0, seed=i),
        range(32),
      )
    )
    assert client.usage().failures == 0
  assert len(set(texts)) > 16


def test_what_it_refuses_is_named_and_holds_no_key(url, tmp_path, monkeypatch):
  monkeypatch.setenv('OPENAI_API_KEY', KEY)
  with pytest.raises(TextModelError, match='404') as error:
    with OpenAIClient(url, 'another', tmp_path / 'cache') as client:
      client.complete(HELLO)
  assert KEY not in str(error.value)
  with _client(url, tmp_path) as client:
    with pytest.raises(TextModelError, match='400'):
      client.complete(HELLO, max_tokens=5000)
    client.complete(HELLO, max_tokens=4)
  files = [p for p in tmp_path.rglob('*') if p.is_file()]
  assert files and all(KEY.encode() not in p.read_bytes() for p in files)


def test_a_cut_answer_is_asked_for_with_more_room_and_then_named(url, tmp_path):
  with _client(url, tmp_path, limit=TokenLimit('config.a')) as client:
    with pytest.raises(
      Unfinished, match='not whole within 96 tokens.*Raise config.a'
    ):
      client.complete(HELLO, max_tokens=12)
    assert client.usage().requests == 4  # of 12, 24, 48 and 96 tokens


def test_a_model_that_writes_nonsense_instruments_nothing(url, tmp_path):
  """Its answers are refused and the programs run as they are."""
  programs = [f'import numpy\nx = {i}\n' for i in range(6)]
  questions = [language_model.prompt(code) for code in programs]
  with _client(url, tmp_path) as client:
    ask = text_models.Instrumenter(client, 64)
    answers = [ask(question).text for question in questions]
  assert len(answers) == 6 and all(answers)
  for code, answer in zip(programs, answers):
    made = language_model.instrument(code, answer, b'key')
    assert made.refused and made.code == code and made.reached(b'x') == ()
