"""Tunix's own sampler as a process, for `benchmarks.decode --against tunix`.

  python -m venv .venv-tunix
  .venv-tunix/bin/python -m pip install google-tunix==0.1.7

Runs in that environment, whose requirements are not ours. argv: a folder with a
Qwen2 model, and columns of its cache. A line of JSON in ({"prompts": ids, "width":
tokens they are padded to, "steps": tokens to draw, "seed": int}) gives a line out:
how many tokens each row has.
"""

import json
import pathlib
import sys

import jax
from tunix.generate.sampler import CacheConfig, Sampler
from tunix.models.qwen2 import model as qwen2
from tunix.models.qwen2 import params

PAD, NEVER = 0, 1 << 30


class Ids:
  """What the sampler asks of a tokenizer, for prompts that are ids already."""

  def encode(self, text):
    return [int(token) for token in text.split()]

  def decode(self, ids):
    return ''

  def bos_id(self):
    return None

  def eos_id(self):
    return NEVER

  def pad_id(self):
    return PAD


def main(folder: str, cache: int) -> None:
  c = json.loads((pathlib.Path(folder) / 'config.json').read_text())
  heads = c['num_attention_heads']
  config = qwen2.ModelConfig(
    num_layers=c['num_hidden_layers'],
    vocab_size=c['vocab_size'],
    embed_dim=c['hidden_size'],
    hidden_dim=c['intermediate_size'],
    num_heads=heads,
    head_dim=c.get('head_dim') or c['hidden_size'] // heads,
    num_kv_heads=c['num_key_value_heads'],
    rope_theta=int(c['rope_theta']),
    norm_eps=c['rms_norm_eps'],
    use_tied_embedding=c['tie_word_embeddings'],
  )
  auto = jax.sharding.AxisType.Auto  # its model indexes as JAX before 0.7 did
  mesh = jax.make_mesh((1, 1), ('fsdp', 'tp'), axis_types=(auto, auto))
  model = params.create_model_from_safe_tensors(folder, config, mesh)
  shape = CacheConfig(
    cache, config.num_layers, config.num_kv_heads, config.head_dim
  )
  sampler = Sampler(model, Ids(), shape)
  print(json.dumps('ready'), flush=True)
  for line in sys.stdin:
    job = json.loads(line)
    done = sampler(
      [' '.join(map(str, ids)) for ids in job['prompts']],
      max_generation_steps=job['steps'],
      max_prompt_length=job['width'],
      eos_tokens=[NEVER],
      temperature=1.0,
      top_p=1.0,
      seed=job['seed'],
      return_logprobs=True,
    )
    print(json.dumps([len(ids) for ids in done.tokens]), flush=True)


if __name__ == '__main__':
  main(sys.argv[1], int(sys.argv[2]))
