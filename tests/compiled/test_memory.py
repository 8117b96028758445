"""The arithmetic plan's memory against that of the compiled programs."""

import json

import pytest

from jaxagent import plan
from jaxagent.compiled import memory
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
    plan.PlanOptions(
      device='cpu',
      tokens_per_sample=512,
      micro_batch_tokens=1024,
      chunk_rows=512,
    ),
  )
  assert planned['need_bytes'] / 1e9 == pytest.approx(needed, rel=0.1)


def test_a_report_gives_the_bytes_that_a_tpu_assigns(tmp_path):
  (tmp_path / 'module.after-memory-usage-report.txt').write_text(
    'Memory Space: default (color=0)\nTotal bytes: 1208171072 (1.12GiB)\n'
    '  cumulative_size; size\nMemory Space: alternate (color=1)\nTotal bytes: 16 (16B)\n'
  )
  assert memory.reported(tmp_path) == 1208171072


def test_a_folder_without_a_report_says_nothing(tmp_path):
  (tmp_path / 'module.txt').write_text('Total bytes: 5')
  assert memory.reported(tmp_path) is None
