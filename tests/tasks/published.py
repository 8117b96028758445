"""Task folders of version 2 for tests: a metric, answers and a sample, as text."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from types import MappingProxyType

import yaml

from jaxagent.envs import tasks as lib

FOLDER = {
  'version': 2,
  'papers': {'000': 'train', '003': 'both'},
  'source': {
    'kind': 'mlebench',
    'id': 'random-acts-of-pizza',
    'url': 'https://example.org/pizza',
    'rules': 'those of the competition',
  },
  'modality': 'text',
  'kind': 'classification',
  'metric': 'random-acts-of-pizza',
  'higher_is_better': True,
  'split': 'heldin',
  'limits': {'timeout_s': 20, 'memory_mb': 1024},
  'data': {'licence': 'none', 'full_mb': 1, 'standin_mb': 1},
  'variants': {
    'standin': {
      'm_init': 0.5,
      'm_best': 0.9,
      'm_init_private': 0.5,
      'm_best_private': 0.9,
      'm_best_source': 'the reference',
    }
  },
}
ANSWERS = (
  'request_id,requester_received_pizza,split\n'
  't3_a,1,valid\nt3_b,0,valid\nt3_c,1,private\nt3_d,0,private\n'
)
SAMPLE = 'request_id,requester_received_pizza\nt3_a,0\nt3_b,0\nt3_c,0\nt3_d,0\n'
# Writes the texts below; notes what it was given in public/source.txt.
_PREPARE = """
import argparse, pathlib
parser = argparse.ArgumentParser()
for name in ('public', 'private', 'mlebench', 'raw'):
  parser.add_argument('--' + name, type=pathlib.Path)
parser.add_argument('--standin', action='store_true')
args = parser.parse_args()
args.public.mkdir()
args.private.mkdir()
for folder, files in {files!r}.items():
  for name, text in files.items():
    (getattr(args, folder) / name).write_bytes(text)
given = 'standin' if args.standin else str(args.mlebench or args.raw)
(args.public / 'source.txt').write_text(given)
"""


def write(
  tasks_dir: pathlib.Path,
  name: str = 'pizza',
  answers: str | bytes = ANSWERS,
  sample: str | bytes = SAMPLE,
  *,
  sample_name: str = 'sample_submission.csv',
  public: Mapping[str, str] = MappingProxyType({}),
  **changes,
) -> pathlib.Path:
  """Writes a task folder; `changes` replace keys of its task.yaml, None removes.

  One whose score is better when lower has no scores, unless they are given.
  public: further public files.
  """
  if not changes.get('higher_is_better', True):
    changes.setdefault('variants', None)
  root = tasks_dir / name
  for folder in ('env', 'scripts'):
    (root / folder).mkdir(parents=True)
  record = {k: v for k, v in {**FOLDER, **changes}.items() if v is not None}
  (root / 'task.yaml').write_text(yaml.safe_dump(record))
  (root / 'env/train.py').write_text('print(1)\n')
  (root / 'scripts/research_problem.txt').write_text('Who gets a pizza?\n')
  (root / 'scripts/read_only_files.txt').write_text('')
  arrays = sample_name.endswith(('.npy', '.npz'))
  files = {
    'public': {
      sample_name: _bytes(sample),
      **{path: _bytes(text) for path, text in public.items()},
    },
    'private': {'answers.npz' if arrays else 'answers.csv': _bytes(answers)},
  }
  (root / 'scripts/prepare.py').write_text(
    _PREPARE.replace('{files!r}', repr(files))
  )
  return root


def _bytes(text: str | bytes) -> bytes:
  return text.encode() if isinstance(text, str) else text


def prepared(
  tmp_path: pathlib.Path, name: str = 'pizza', **options
) -> lib.PreparedTask:
  """Writes a task folder and prepares its stand-in."""
  write(tmp_path / 'tasks', name, **options)
  spec = lib.load_task(name, tmp_path / 'tasks')
  return lib.prepare_task(spec, tmp_path / 'data')
