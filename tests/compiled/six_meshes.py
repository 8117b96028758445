"""Compiles the learner's programs of a model on meshes of eight devices.

usage: python -m tests.compiled.six_meshes ROWS ROW_TOKENS 'OPTIONS' MESH...
Prints JSON by mesh and program: collectives, what was worked out by hand, memory.
"""

import json
import sys

from jaxagent.compiled import programs, report
from jaxagent.devices import sharding
from jaxagent.learner import LearnerConfig
from jaxagent.models import ModelConfig

SMALL = dict(
  vocab_size=512,
  hidden_size=64,
  intermediate_size=192,
  num_hidden_layers=2,
  num_attention_heads=8,
  num_key_value_heads=4,
  head_dim=8,
  tie_word_embeddings=False,
  attention_bias=True,
  scan_layers=True,
  remat='full',
)


def main(rows: str, row_tokens: str, options: str, *meshes: str) -> None:
  given = json.loads(options)
  model = ModelConfig(**(SMALL | given.get('model', {})))
  learner = LearnerConfig(
    **{
      'chunk_rows': 64,
      'ppo_epochs': 1,
      'entropy_metric': False,
      **given.get('learner', {}),
    }
  )
  found = {}
  for name in meshes:
    mesh = sharding.make_mesh([int(n) for n in name.split('x')])
    each = int(rows) * sharding.rows_multiple(mesh)
    run = programs.Run(model, learner, each, int(row_tokens))
    found[name] = report.compiled_plan(
      run,
      mesh,
      None,
      lambda line: print(line, file=sys.stderr),
      given.get('only'),
    )
  print(json.dumps(found))


if __name__ == '__main__':
  main(*sys.argv[1:])
