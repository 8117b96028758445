"""A vLLM server for all tests of this folder: its start takes 20 seconds."""

import pytest

from tests.rollout.served import served


@pytest.fixture(scope='package')
def vllm_qwen2(tmp_path_factory):
  with served('vllm', 'qwen2', tmp_path_factory.mktemp('vllm')) as made:
    yield made
