"""Whole solutions: a plan in a few sentences and one program (paper 003, C.1).

How a task is described to a policy, and what is read from its answer; its prompts are in
`solution_prompts`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import pathlib
import re
from collections.abc import Mapping

import numpy as np

from jaxagent import types
from jaxagent.envs import parser

SYSTEM = (
  'You are given a machine learning task. You must solve the task by training a '
  'model and running the model on the test set to produce a submission file.'
)
# Of tasks that do not say.
_PACKAGES = ('numpy', 'pandas', 'scikit-learn', 'scipy')
MOST_FILES = 20  # of a kind in a folder that a prompt names one by one
MOST_CHARACTERS = 1_000_000  # of a program
_FENCE = re.compile(r'^[ \t]*```([^\n`]*)$', re.M)
_BRIEF = '{name}: {kind} of {modality} data, {measure}\n'


class SolutionError(ValueError):
  """A response that holds no solution; says why, for trace and policy."""


@dataclasses.dataclass(frozen=True)
class Solution:
  """A response's proposal: a plan and its program."""

  plan: str
  code: str


@dataclasses.dataclass(frozen=True)
class Previous:
  """A solution that was run, to be improved upon.

  outcome, reason: how its run ended, in a word and a line; '' where that is not shown.
  score: on the validation rows; None where it has none, or it is not shown.
  """

  solution: Solution
  output: str
  outcome: str = ''
  reason: str = ''
  score: float | None = None


@dataclasses.dataclass(frozen=True)
class Task:
  """A request: a task by name, and perhaps earlier solutions to go on from.

  previous_id: that solution's, for traces; '' where there is none.
  operator: of OPERATORS; '': improve where there is a previous one, else draft.
  asked: the operator that was drawn, where another had to be taken; else ''.
  second, second_id: of a crossover the other solution.
  """

  name: str
  previous: Previous | None = None
  previous_id: str = ''
  operator: str = ''
  asked: str = ''
  second: Previous | None = None
  second_id: str = ''

  @property
  def kind(self) -> str:
    """The operator that its prompt is of."""
    return self.operator or ('improve' if self.previous else 'draft')


def solution_id(task: str, code: str) -> str:
  """Equal code for a task is one solution, whatever its plan says."""
  text = f'{task}\0{code}'.encode('utf-8', 'surrogatepass')
  return hashlib.sha256(text).hexdigest()[:24]


def parse(response: str) -> Solution:
  """Raises SolutionError unless there is a plan and exactly one code block."""
  if not parser.is_text(response):
    raise SolutionError(
      'the response holds a NUL or a lone surrogate; write plain text'
    )
  fences = list(_FENCE.finditer(response))
  if not fences:
    raise SolutionError('no code block')
  if len(fences) == 1:
    raise SolutionError('the code block is not closed')
  if len(fences) > 2:
    raise SolutionError(f'{len(fences) / 2:g} code blocks, not one')
  opened, closed = fences
  plan = response[: opened.start()].strip()
  code = response[opened.end() + 1 : closed.start()]
  if not plan:
    raise SolutionError('no plan before the code block')
  if not code.strip():
    raise SolutionError('the code block is empty')
  if len(code) > MOST_CHARACTERS:
    raise SolutionError(
      f'{len(code)} characters of code are more than {MOST_CHARACTERS}'
    )
  return Solution(plan, code)


@dataclasses.dataclass(frozen=True)
class Description:
  """Description of a task for prompts.

  brief: one line for small policies.
  measure: the metric, and which of two scores is better.
  files: name -> text of its beginning.
  folder: where the program finds them.
  is_folder: the submission is a folder of files.
  """

  brief: str
  problem: str
  submission: str
  folder: str
  files: Mapping[str, str]
  example: str
  packages: tuple[str, ...] = _PACKAGES
  measure: str = ''
  is_folder: bool = False


def packages_of(spec: types.TaskSpec) -> tuple[str, ...]:
  """Returns what a task's programs may import, by `environment.packages`."""
  own = spec.details.environment.packages if spec.details else ()
  return own or _PACKAGES


def describe(
  spec: types.TaskSpec,
  public_dir: pathlib.Path,
  *,
  sample: str = 'sample_submission.csv',
  lines: int = 8,
  width: int = 400,
) -> Description:
  """A task's description: the first lines of each file in `public_dir`.

  Of many files of a kind in a folder, as of images, two are named, and all counted;
  many folders beside each other, as one an id, count as one.

  sample: the sample submission's path in `public_dir`; the description shows it
    apart from the other files.
  """
  kinds = _kinds(public_dir)
  files = {}
  for kind, found in itertools.islice(kinds.items(), MOST_FILES):
    many = len(found) > MOST_FILES
    for inside in found[:2] if many else found:
      files[str(inside)] = _beginning(public_dir / inside, lines, width)
    if many:
      files[str(kind)] = f'({len(found)} files)'
  if rest := list(kinds.values())[MOST_FILES:]:
    files['...'] = f'({sum(map(len, rest))} files of {len(rest)} other kinds)'
  files.pop(sample, None)
  example = _example(public_dir / sample, lines, width)
  better = 'higher' if spec.higher_is_better else 'lower'
  measure = f'{spec.metric}, {better} is better'
  brief = _BRIEF.format(
    name=spec.name, kind=spec.kind, modality=spec.modality, measure=measure
  )
  return Description(
    brief + example.partition('\n')[0] + '\n',
    spec.research_problem.strip(),
    spec.submission,
    'data/',
    files,
    example,
    packages_of(spec),
    measure,
    spec.details is not None and spec.details.is_folder,
  )


def _kinds(root: pathlib.Path) -> dict[pathlib.Path, list[pathlib.Path]]:
  """Returns the files below a folder, by folder and suffix.

  Names of folders are * where there are more than MOST_FILES beside each other.
  """
  names: dict[pathlib.Path, set[str]] = {}
  found = sorted(
    path.relative_to(root) for path in root.rglob('*') if path.is_file()
  )
  for path in found:
    for folder in list(path.parents)[:-1]:
      names.setdefault(folder.parent, set()).add(folder.name)
  kinds: dict[pathlib.Path, list[pathlib.Path]] = {}
  for path in found:
    kind = pathlib.Path(f'*{path.suffix}')
    for folder in list(path.parents)[:-1]:
      many = len(names[folder.parent]) > MOST_FILES
      kind = pathlib.Path('*' if many else folder.name, kind)
    kinds.setdefault(kind, []).append(path)
  return kinds


def _example(path: pathlib.Path, lines: int, width: int) -> str:
  """Three lines of a sample submission; of arrays their types and shapes."""
  if not path.is_file():
    return ''
  if path.suffix == '.npy':
    return _array(np.load(path, mmap_mode='r', allow_pickle=False))
  if path.suffix == '.npz':
    with np.load(path, allow_pickle=False) as found:
      return '\n'.join(f'{name}: {_array(found[name])}' for name in found)
  return '\n'.join(_beginning(path, lines, width).splitlines()[:3])


def _array(array: np.ndarray) -> str:
  return f'an array of {array.dtype}, shape {list(array.shape)}'


def _beginning(path: pathlib.Path, lines: int, width: int) -> str:
  """The first lines as text; what a file of another kind is, in words."""
  with open(path, 'rb') as file:
    data = file.read(lines * width)
  if b'\0' in data:
    return f'({path.stat().st_size} bytes)'
  text = data.decode('utf-8', 'replace').splitlines()[:lines]
  return '\n'.join(line[:width] for line in text)
