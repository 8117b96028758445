"""The frozen model that instruments, behind an endpoint."""

from __future__ import annotations

import types as stubs

import pytest

from jaxagent.llm.openai_client import OpenAIClient
from jaxagent.loops import text_models


def _config(kind: str, url: str = 'http://127.0.0.1:9/v1'):
  options = stubs.SimpleNamespace(
    kind=kind, base_url=url, model='m', max_tokens=64
  )
  return stubs.SimpleNamespace(instrumenter=options)


def test_one_that_is_down_gives_no_answer(tmp_path, monkeypatch):
  monkeypatch.setattr(
    text_models,
    '_client',
    lambda options, work: OpenAIClient(
      options.base_url, options.model, max_retries=0
    ),
  )
  ask = text_models.make_instrumenter(_config('openai'), tmp_path)
  assert ask(['one', 'two']) == ['', '']


@pytest.mark.parametrize('kind', ['syntax', 'verified', 'none'])
def test_no_model_is_asked(tmp_path, kind):
  assert text_models.make_instrumenter(_config(kind), tmp_path) is None
