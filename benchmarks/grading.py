"""How long `strict` takes on a submission of millions of rows, and how much memory.

  python -m benchmarks.grading [--rows 5800000] [--shuffle] [--training]

denoising-dirty-documents' form: an id for each pixel of images of 420 x 540,
and a value. The files are made from a seed in a temporary folder; the grading
runs in a process of its own, whose CPU seconds and largest memory are printed.
With --training it is the grader of a run: the seconds of the first grade, which starts
its process and reads the answers, of the next two, and the memory of the largest process.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import numpy as np

HEIGHT, WIDTH = 420, 540


NAME = 'denoising-dirty-documents'


def make(folder: pathlib.Path, rows: int, shuffle: bool) -> None:
  """Writes `answers.csv`, `submission.csv` and `sample_submission.csv`.

  The halves are images, even and odd.
  """
  rng = np.random.default_rng(0)
  pixel = np.arange(rows)
  image, inside = np.divmod(pixel, HEIGHT * WIDTH)
  row, column = np.divmod(inside, WIDTH)
  ids = np.stack([image, row, column], 1) + 1
  truth = rng.integers(0, 256, rows) / 255
  given = np.round(rng.random(rows), 6)
  order = rng.permutation(rows) if shuffle else pixel
  for name, values, places in (
    ('answers', truth, pixel),
    ('submission', given, order),
    ('sample_submission', np.ones(rows, int), pixel),
  ):
    halves = ('', '') if name != 'answers' else (',valid', ',private')
    with (folder / f'{name}.csv').open('w') as file:
      file.write('id,value' + (',split' if halves[0] else '') + '\n')
      for start in range(0, rows, 1 << 18):
        part = places[start : start + (1 << 18)]
        file.writelines(
          f'{i}_{r}_{c},{v}{halves[i % 2]}\n'
          for (i, r, c), v in zip(ids[part].tolist(), values[part].tolist())
        )


def grade(folder: pathlib.Path) -> dict[str, float | str | None]:
  """Grades in this process, with what it took."""
  from jaxagent import graders

  before = time.process_time()
  got = graders.grade_files(
    NAME,
    folder / 'submission.csv',
    folder / 'answers.csv',
    'strict',
  )
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  return {
    'score': got.score,
    'reason': got.reason,
    'cpu_s': round(time.process_time() - before, 1),
    'peak_mib': round(peak / 1024),
  }


def grade_in_training(folder: pathlib.Path) -> dict[str, object]:
  """Grades as a run does, with what it took."""
  from jaxagent import types
  from jaxagent.envs.grading import Grader
  from jaxagent.envs.tasks import PreparedTask

  details = types.TaskDetails(
    types.TaskSource('mlebench', NAME), submission_mb=400
  )
  spec = types.TaskSpec(
    name=NAME,
    root=folder,
    modality='image',
    kind='restoration',
    metric=NAME,
    higher_is_better=False,
    m_init=None,
    m_best=None,
    m_best_source='',
    split='heldin',
    limits=types.Limits(),
    details=details,
  )
  task = PreparedTask(spec, folder, folder, {}, {})
  data = (folder / 'submission.csv').read_bytes()
  seconds, scores = [], []
  with Grader({NAME: task}) as grader:
    for split in ('valid', 'valid', 'private'):
      begun = time.monotonic()
      got = grader.grade(NAME, data, split, own_work=True)
      seconds.append(round(time.monotonic() - begun, 1))
      scores.append(got.score if got.score is not None else got.reason)
  peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
  return {
    'scores': scores,
    'seconds': seconds,
    'peak_mib': round(peak / 1024),
  }


def main(argv: Sequence[str] | None = None) -> None:
  """The command line."""
  parser = argparse.ArgumentParser(
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument('--rows', type=int, default=5_800_000)
  parser.add_argument('--shuffle', action='store_true')
  parser.add_argument('--training', action='store_true')
  parser.add_argument('--grade', type=pathlib.Path, help=argparse.SUPPRESS)
  args = parser.parse_args(argv)
  if args.grade:
    run = grade_in_training if args.training else grade
    print(json.dumps(run(args.grade)))
    return
  with tempfile.TemporaryDirectory() as name:
    make(pathlib.Path(name), args.rows, args.shuffle)
    command = [sys.executable, '-m', 'benchmarks.grading', '--grade', name]
    command += ['--training'] if args.training else []
    subprocess.run(command, check=True)


if __name__ == '__main__':
  main()
