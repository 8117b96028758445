"""The recipe's texts, parsers and records start without an accelerator."""

from __future__ import annotations

import subprocess
import sys


def test_texts_parsers_and_records_import_without_jax():
  program = (
    'import sys\n'
    'from jaxagent.envs.agents import implementer\n'
    'from jaxagent.recipes.ideator import (\n'
    '  parser, programs, prompt, record, types_of)\n'
    'assert not {"jax", "ml_collections"} & set(sys.modules)\n'
  )
  done = subprocess.run(
    [sys.executable, '-c', program], capture_output=True, text=True, timeout=120
  )
  assert done.returncode == 0, done.stderr[-2000:]
