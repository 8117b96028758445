"""The arithmetic plan's memory against that of the compiled programs."""

import json

import pytest

from jaxagent import plan
from jaxagent.models import ModelConfig
from tests.compiled import simulated
from tests.compiled.six_meshes import SMALL
from tests.compiled.test_volume import MESHES

# Wide enough that weights and activations are more than what a compiler adds.
WIDE = {
  'vocab_size': 8192,
  'hidden_size': 512,
  'intermediate_size': 1536,
  'num_hidden_layers': 4,
  'head_dim': 64,
}


@pytest.mark.slow
@pytest.mark.parametrize('mesh', MESHES)
def test_arithmetic_is_within_a_tenth_of_what_is_compiled(mesh):
  given = {
    'only': ['policy_grads', 'policy_step'],
    'model': WIDE,
    'learner': {'chunk_rows': 512},
  }
  found = simulated.run(
    'tests.compiled.six_meshes', '2', '512', json.dumps(given), mesh
  )
  needed = max(r['total_gb'] for r in found[mesh]['programs'].values())
  sizes = dict(zip(('data', 'fsdp', 'tensor'), map(int, mesh.split('x'))))
  planned = plan.plan(
    ModelConfig(**(SMALL | WIDE)),
    sizes,
    device='cpu',
    tokens_per_sample=512,
    micro_batch_tokens=1024,
    chunk_rows=512,
  )
  assert planned['need_bytes'] / 1e9 == pytest.approx(needed, rel=0.1)
