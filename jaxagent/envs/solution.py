"""Whole solutions: a plan in a few sentences and one program (paper 003, C.1).

What the policy is asked, from scratch or from a previous solution (C.2), and what
is read from its answer.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import pathlib
import re
from collections.abc import Callable, Mapping

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
_SOLVE = """\
First outline your proposed solution in natural language (3-5 sentences), followed \
by a single markdown code block (wrapped in ```).

Note: Datasets {files} are available in `{folder}`. You MUST produce a submission \
{what} at `./{submission}` by running your model on the test split.

{problem}

You can use pre-installed packages such as: {packages}. You can't access the \
internet so don't use any pre-trained models need downloading.

`./{submission}` should have the following format:
```
{example}
```
"""
_IMPROVE = """\
You have implemented a previous solution. Revise the solution to improve the \
performance on the test set. First outline your proposed solution in natural \
language (3-5 sentences), followed by a single markdown code block (wrapped in \
```) which implements this solution. If you reuse parts of the example code, include \
those sections again in your final solution.

Previous solution:
{plan}
```python
{code}
```
Its output:
```
{output}
```
"""


_BRIEF = '{name}: {kind} of {modality} data, {metric}, {better} is better\n'
_BRIEF_IMPROVE = 'Improve this.\n{plan}\n{code}Its output:\n{output}\n'


class SolutionError(ValueError):
  """A response that holds no solution; says why, for trace and policy."""


@dataclasses.dataclass(frozen=True)
class Solution:
  """A response's proposal: a plan and its program."""

  plan: str
  code: str


@dataclasses.dataclass(frozen=True)
class Previous:
  """A solution that was run, to be improved upon."""

  solution: Solution
  output: str


@dataclasses.dataclass(frozen=True)
class Task:
  """A request: a task by name, and perhaps an earlier solution to improve.

  previous_id: that solution's, for traces; '' where there is none.
  """

  name: str
  previous: Previous | None = None
  previous_id: str = ''


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
  brief = _BRIEF.format(
    name=spec.name,
    kind=spec.kind,
    modality=spec.modality,
    metric=spec.metric,
    better='higher' if spec.higher_is_better else 'lower',
  )
  return Description(
    brief + example.partition('\n')[0] + '\n',
    spec.research_problem.strip(),
    spec.submission,
    'data/',
    files,
    example,
    packages_of(spec),
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


def ask(
  task: Description,
  previous: Previous | None,
  fits: Callable[[str], bool],
  *,
  style: str = 'full',
) -> str:
  """Returns the prompt in the style 'full' (the paper's) or 'compact'.

  fits: whether a text is within the prompt's budget, see `solve`. 'compact' has
    no more than a line about the task: a policy that is trained on it alone
    needs none.
  """
  if style == 'full':
    return solve(task, previous, fits)
  if previous is None:
    return task.brief
  return task.brief + _longest(
    lambda n: _BRIEF_IMPROVE.format(
      plan=previous.solution.plan,
      code=previous.solution.code,
      output=_end_of(previous.output, n),
    ),
    len(previous.output),
    lambda text: fits(task.brief + text),
  )


def solve(
  task: Description, previous: Previous | None, fits: Callable[[str], bool]
) -> str:
  """Returns the paper's prompt, with as much of the data as `fits` allows.

  fits: whether a text is within the prompt's budget. The data's beginning is cut
    first, then the previous output from its front; then the task is left out, as
    in the paper's own prompt for improving (C.2), and the middle of the previous
    program. What is left is returned even where it does not fit.
  """
  text = _SOLVE.format(
    files=', '.join(f'`{name}`' for name in task.files) or 'none',
    folder=task.folder,
    submission=task.submission,
    what='folder' if task.is_folder else 'file',
    problem=task.problem,
    packages=', '.join(f'`{name}`' for name in task.packages),
    example=task.example,
  )
  if previous is not None:
    if not fits(f'{text}\n{_improve(previous, 0)}'):
      return _improve_alone(previous, fits)
    text = _longest(
      lambda n: f'{text}\n{_improve(previous, n)}', len(previous.output), fits
    )
  snippet = _snippet(task)
  return _longest(
    lambda n: f'{text}\nData snippet:\n{snippet[:n]}\n' if n else text,
    len(snippet),
    fits,
  )


def _improve(previous: Previous, n: int, code: str | None = None) -> str:
  """Returns the prompt to improve, with the last n characters of the output."""
  if code is None:
    code = previous.solution.code
  return _IMPROVE.format(
    plan=previous.solution.plan,
    code=code.rstrip('\n'),
    output=_end_of(previous.output, n),
  )


def _improve_alone(previous: Previous, fits: Callable[[str], bool]) -> str:
  if fits(_improve(previous, 0)):
    return _longest(lambda n: _improve(previous, n), len(previous.output), fits)
  code = previous.solution.code
  return _longest(
    lambda n: _improve(previous, 0, f'{code[:n]}\n# [...]\n{_end_of(code, n)}'),
    len(code) // 2,
    fits,
  )


def _end_of(text: str, n: int) -> str:
  return text[len(text) - n :]


def _longest(
  text: Callable[[int], str], n: int, fits: Callable[[str], bool]
) -> str:
  """text(k) for the largest k of 0..n that fits, or text(0)."""
  low, high = 0, n
  while low < high:
    middle = (low + high + 1) // 2
    if fits(text(middle)):
      low = middle
    else:
      high = middle - 1
  return text(low)


def _snippet(task: Description) -> str:
  return '\n'.join(
    f'-> {task.folder}{name}:\n{text}' for name, text in task.files.items()
  )


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
