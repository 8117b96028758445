"""Both engines over one small policy, made as a run makes them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from configs import common
from jaxagent import types
from jaxagent.data import bpe
from jaxagent.models import init_decoder, lora, token_logprobs
from jaxagent.runtime import engines
from jaxagent.testing import process_tree
from jaxagent.training import device

ROOT = pathlib.Path(__file__).parents[2]
# launch_scripts/test.sh names another folder where this one is for CUDA.
FOLDER = os.environ.get('JAXAGENT_TEST_VLLM_FOLDER', '.venv-vllm')
PYTHON = ROOT / FOLDER / 'bin' / 'python'
PROMPT, NEW = 320, 160
KINDS = {
  'qwen2': {'model_type': 'qwen2', 'tie_word_embeddings': True},
  'qwen3': {
    'model_type': 'qwen3',
    'tie_word_embeddings': False,
    'attention_bias': False,
    'head_dim': 64,
  },
}


def need_vllm() -> None:
  """Where the environment is promised, doing without it is a failure.

  launch_scripts/test.sh promises it, and may still be at it.
  """
  maker = int(os.environ.get('JAXAGENT_TEST_VLLM_MAKER') or 0)
  while process_tree.lives(maker):
    time.sleep(0.5)
  if PYTHON.is_file():
    return
  how = 'make it with `bash launch_scripts/vllm_env.sh cpu`'
  if os.environ.get('JAXAGENT_TEST_VLLM'):
    pytest.fail(f'{PYTHON} is missing: {how}')
  pytest.skip(f'no vLLM environment: {how}')


class Served:
  """A policy of random weights behind an engine.

  name: 'native' or 'vllm'. kind: of `KINDS`. rank: of adapters that are served; 0:
  none. options: of `config.rollout`.
  """

  def __init__(
    self,
    name: str,
    kind: str,
    work: pathlib.Path,
    rank: int = 0,
    **options: Any,
  ):
    config = common.base()
    config.model.hf.update(
      hidden_size=128,  # in heads of 32, the smallest that vLLM's CPU build has
      intermediate_size=192,
      num_hidden_layers=2,
      **KINDS[kind],
    )
    config.rollout.engine = name
    config.rollout.max_prompt_tokens = PROMPT
    config.rollout.max_new_tokens = NEW
    config.rollout.max_num_seqs = 16
    config.rollout.vllm.python = str(PYTHON)
    config.rollout.update(options)
    self.tokenizer = bpe.train([pathlib.Path(__file__).read_text()], 320)
    self.tokenizer.save(work / 'tokenizer')
    config.model.lora.rank = rank
    self.model = device.model_config(config, self.tokenizer.vocab_size)
    plain = self.model.replace(lora_rank=0)
    self.graphdef, params = init_decoder(plain, 0)
    self.params = scaled(params, 2.5)
    given = engines.Served(
      config, work, plain, self.graphdef, self.params, self.tokenizer
    )
    if rank:
      given = dataclasses.replace(given, adapted=self.model)
      made = lora.add_lora(self.model, self.params, seed=1)
      self.graphdef, self.params = made[1:]
    self.engine = engines.make_engine(given)
    self.engine.update_weights(self.params, 0)

  def request(self, i: int, length: int = 6, seed: int | None = None, **s):
    """A prompt of `length` random tokens, the same for each `i`."""
    rng = np.random.default_rng(i)
    prompt = rng.integers(3, self.tokenizer.vocab_size, length)
    return types.Request(
      f'r{i}',
      prompt.astype(np.int32),
      i if seed is None else seed,
      types.Sampling(**{'max_new_tokens': 24, **s}),
    )

  def gap(self, done, params=None, tokens=slice(None), temperature=1.0):
    """Largest distance in nats from the learner's log-probs of `tokens`."""
    params = self.params if params is None else params
    ids = np.zeros((1, PROMPT + NEW), np.int32)  # what comes after is not seen
    whole = np.concatenate([done.prompt_ids, done.token_ids])
    ids[0, : len(whole)] = whole
    scored = np.asarray(_score(self.graphdef, params, ids, temperature))
    want = scored[len(done.prompt_ids) - 1 : len(whole) - 1]
    return np.abs(want - done.logprobs)[tokens].max(initial=0.0)


@functools.partial(jax.jit, static_argnums=0)
def _score(graphdef, params, ids, temperature):
  model = nnx.merge(graphdef, params)
  hidden = model(ids, jnp.arange(ids.size)[None], jnp.ones_like(ids))
  logp, _ = token_logprobs(
    hidden[:, :-1], model.unembed, ids[:, 1:], temperature=temperature
  )
  return logp[0]


@contextlib.contextmanager
def served(name: str, kind: str, work: pathlib.Path, **options):
  """A `Served`, closed at the end."""
  if name == 'vllm':
    need_vllm()
  made = Served(name, kind, work, **options)
  try:
    yield made
  finally:
    made.engine.close()


def scaled(params, by: float):
  """Other weights, whose log-probs are far from these."""
  return jax.tree.map(lambda a: by * a, params)
