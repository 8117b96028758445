"""Data of tasks whose submission is a program: inputs and right outputs, by rounds.

A round is one input of its own. The hidden ones are divided into `valid` and
`private`, and one more is public, with its output.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import sys
from collections.abc import Callable, Mapping

import numpy as np

from jaxagent.envs.specs import task_data
from jaxagent.tasks import kit

EACH = 5  # hidden rounds of a half
COUNT = 2 * EACH + 1
_DECIMALS = 6  # kept of an output: what is beyond depends on the CPU
_SAMPLE = '''"""Where a program reads and writes; it is of no use otherwise."""

import sys

import numpy as np

with np.load(sys.argv[1]) as given:
  print(given.files)
np.save(sys.argv[2], np.zeros({shape}))
'''


@dataclasses.dataclass(frozen=True)
class Rounds:
  """Inputs and outputs of COUNT rounds, the public one last.

  inputs: name -> array [COUNT, ...].
  output: what a program is to write, [COUNT, ...].
  tolerance: by how much a number may differ, relative where it is above 1.
  """

  inputs: Mapping[str, np.ndarray]
  output: np.ndarray
  tolerance: float


def write(public: pathlib.Path, private: pathlib.Path, made: Rounds) -> None:
  """Writes an example to `data/`, and inputs and answers of the hidden rounds."""
  for folder in (public, private):
    folder.mkdir(parents=True, exist_ok=True)
  output = made.output.round(_DECIMALS)
  example = {name: values[-1] for name, values in made.inputs.items()}
  (public / 'example_input.npz').write_bytes(task_data.npz(example))
  np.save(public / 'example_output.npy', output[-1])
  sample = _SAMPLE.format(shape=output.shape[1:])
  (public / 'sample_submission.py').write_text(sample)
  hidden = {name: values[:-1] for name, values in made.inputs.items()}
  (private / task_data.INPUTS).write_bytes(task_data.npz(hidden))
  answers = {
    'output': output[:-1],
    'tolerance': np.full(COUNT - 1, made.tolerance),
    'split': np.array([kit.SPLITS[k % 2] for k in range(COUNT - 1)]),
  }
  (private / 'answers.npz').write_bytes(task_data.npz(answers))


def prepare(
  text: str | None, source: str, standin: Callable[[], Rounds]
) -> None:
  """Runs the command line of such a task. There is no published data of inputs.

  text: the script's docstring. source: what there is instead, for people.
  """
  parser = argparse.ArgumentParser(
    description=text, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  for name in ('--public', '--private'):
    parser.add_argument(name, type=pathlib.Path, required=True)
  which = parser.add_mutually_exclusive_group()
  which.add_argument('--standin', action='store_true', help='made by code')
  for name in ('--raw', '--mlebench'):
    which.add_argument(name, metavar='DIR', help='there is none of this task')
  args = parser.parse_args()
  if not args.standin:
    sys.exit(f'{source}\nchoose --standin.')
  write(args.public, args.private, standin())
