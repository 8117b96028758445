"""A small task whose submission is a program: running sums, one round a half."""

from __future__ import annotations

import pathlib

import numpy as np
import yaml

from jaxagent.envs import tasks as lib
from jaxagent.envs.specs import task_data

FOLDER = {
  'version': 2,
  'papers': {'002': 'evaluate'},
  'source': {'kind': 'made', 'id': 'sums', 'rules': 'none'},
  'modality': 'code',
  'kind': 'speed',
  'metric': 'speed',
  'higher_is_better': False,
  'split': 'heldin',
  'submission': {'path': 'submission.py', 'format': 'py', 'max_mb': 0.1},
  'limits': {'timeout_s': 10, 'memory_mb': 1024},
  'variants': {
    'standin': {
      'm_init': 3.0,
      'm_best': 0.0,
      'm_init_private': 3.0,
      'm_best_private': 0.0,
      'm_best_source': 'the reference',
    }
  },
}
HEAD = 'import os, signal, sys, time\nimport numpy as np\n'
READ = "x = np.load(sys.argv[1])['x']\n"
WRITE = 'np.save(sys.argv[2], np.cumsum(x))\n'
# Right, and as fast as the reference.
PROGRAM = HEAD + READ + WRITE
# Hands a program over that lies beside it.
HAND_OVER = "import shutil\nshutil.copyfile('given.py', 'submission.py')\n"
SIZE = 500


def write(tasks_dir: pathlib.Path, **changes) -> pathlib.Path:
  """Writes the folder; `changes` replace keys of its task.yaml, None removes."""
  root = tasks_dir / 'sums'
  for folder in ('env', 'scripts', 'solution'):
    (root / folder).mkdir(parents=True)
  record = {k: v for k, v in {**FOLDER, **changes}.items() if v is not None}
  (root / 'task.yaml').write_text(yaml.safe_dump(record))
  (root / 'env/train.py').write_text(HAND_OVER)
  (root / 'env/given.py').write_text(PROGRAM)
  (root / 'solution/reference.py').write_text(PROGRAM)
  (root / 'scripts/research_problem.txt').write_text('Sum up.\n')
  (root / 'scripts/read_only_files.txt').write_text('')
  (root / 'scripts/prepare.py').write_text('raise SystemExit(1)\n')
  return root


def prepared(tmp_path: pathlib.Path, rounds: int = 1) -> lib.PreparedTask:
  """Writes folder and data with so many rounds a half."""
  root = write(tmp_path / 'tasks')
  spec = lib.load_task('sums', tmp_path / 'tasks')
  public, private = tmp_path / 'public', tmp_path / 'private'
  public.mkdir()
  private.mkdir()
  x = np.random.RandomState(0).rand(2 * rounds, SIZE)
  (public / 'sample_submission.py').write_text('print(1)\n')
  (private / task_data.INPUTS).write_bytes(task_data.npz({'x': x}))
  answers = {
    'output': np.cumsum(x, axis=1),
    'tolerance': np.full(2 * rounds, 1e-6),
    'split': np.array(['valid', 'private'] * rounds),
  }
  (private / 'answers.npz').write_bytes(task_data.npz(answers))
  return lib.PreparedTask(
    spec=spec,
    public_dir=public,
    private_dir=private,
    starter_files=lib.starter_files(root),
    mounts={'data': public},
  )
