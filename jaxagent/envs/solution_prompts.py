"""Prompts for whole solutions: draft, improve, debug, crossover.

The first two are paper 003's (C.1, C.2); the others have words of their own. Each comes
in full, and compact, for small policies.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence

from jaxagent.envs.solution import Description, Previous, Solution, Task

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
_DEBUG = """\
You have implemented a previous solution, and it failed ({failure}). Find what made it \
fail and mend that; leave the rest as it is unless it cannot stay. First say in natural \
language what went wrong and how you mend it (3-5 sentences), followed by a single \
markdown code block (wrapped in ```) with the whole mended program.

Failed solution:
{plan}
```python
{code}
```
The end of its output:
```
{output}
```
"""
_CROSSOVER = """\
You have implemented two solutions. Write one that joins what is good in both, to score \
better than either on the test set. First outline in natural language (3-5 sentences) \
what you take of each, followed by a single markdown code block (wrapped in ```) with \
the whole program.

Scores are of the validation rows: {measure}.

First solution, score {score}:
{plan}
```python
{code}
```
Its output:
```
{output}
```

Second solution, score {second_score}:
{second_plan}
```python
{second_code}
```
Its output:
```
{second_output}
```
"""
_FULL = {'improve': _IMPROVE, 'debug': _DEBUG, 'crossover': _CROSSOVER}
_COMPACT = {
  'improve': 'Improve this.\n{plan}\n{code}Its output:\n{output}\n',
  'debug': 'Debug this: {failure}\n{plan}\n{code}{error}\n',
  'crossover': (
    'Combine these.\nScore {score}. {plan}\n{code}'
    'Score {second_score}. {second_plan}\n{second_code}'
  ),
}
# The line that names an exception, and what follows it.
_ERROR = re.compile(r'^[\w.]*(?:Error|Exception|Interrupt|Exit)\b.*', re.M)


def ask(
  task: Description,
  asked: Task,
  fits: Callable[[str], bool],
  *,
  style: str = 'full',
) -> str:
  """Returns the prompt in the style 'full' or 'compact'.

  fits: whether a text is within the prompt's budget, see `solve`. 'compact' has
    no more than a line about the task: a policy that is trained on it alone
    needs none. Of a failure it shows the error, and of a second program the lines
    that the first does not have.
  """
  if style == 'full':
    return solve(task, asked, fits)
  if asked.previous is None:
    return task.brief
  if asked.second is not None:
    asked = dataclasses.replace(
      asked, second=_own_lines(asked.second, asked.previous)
    )
  shown = _Shown(_COMPACT[asked.kind], asked, task.measure, bare='')

  def fits_behind(text: str) -> bool:
    return fits(task.brief + text)

  if asked.kind != 'improve' and not fits_behind(shown.whole(0)):
    return task.brief + _longest(shown.cut, shown.most_cut, fits_behind)
  return task.brief + _longest(shown.whole, shown.most, fits_behind)


def solve(task: Description, asked: Task, fits: Callable[[str], bool]) -> str:
  """Returns the full prompt, with as much of the data as `fits` allows.

  fits: whether a text is within the prompt's budget. The data's beginning is cut
    first, then the previous output from its front; then the task is left out, as
    in the paper's own prompt for improving (C.2), and the middle of the previous
    program; of two programs that of the second goes first. What is left is returned
    even where it does not fit.
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
  if asked.previous is not None:
    shown = _Shown(_FULL[asked.kind], asked, task.measure, bare='\n')
    if not fits(f'{text}\n{shown.whole(0)}'):
      return _alone(shown, fits)
    text = _longest(lambda n: f'{text}\n{shown.whole(n)}', shown.most, fits)
  snippet = _snippet(task)
  return _longest(
    lambda n: f'{text}\nData snippet:\n{snippet[:n]}\n' if n else text,
    len(snippet),
    fits,
  )


def _alone(shown: _Shown, fits: Callable[[str], bool]) -> str:
  if fits(shown.whole(0)):
    return _longest(shown.whole, shown.most, fits)
  return _longest(shown.cut, shown.most_cut, fits)


class _Shown:
  """Text about earlier solutions, whole or cut.

  Args:
    words: the template.
    measure: of the scores.
    bare: what is taken off a program's end.
  """

  def __init__(self, words: str, asked: Task, measure: str, bare: str):
    self._words, self._measure, self._bare = words, measure, bare
    shown = (asked.previous, asked.second)
    self._solutions = [one for one in shown if one is not None]
    self.most = max(len(one.output) for one in self._solutions)
    self.most_cut = sum(map(_half, self._solutions))

  def whole(self, n: int) -> str:
    """The programs, with the last n characters of each output."""
    return self._filled([one.solution.code for one in self._solutions], n)

  def cut(self, n: int) -> str:
    """The programs without output, n characters kept at their heads together, n at their ends.

    The last one gives up its middle first.
    """
    codes = []
    for number, one in enumerate(self._solutions):
      kept = min(n, _half(one))
      n -= kept
      is_whole = kept == _half(one) and number + 1 < len(self._solutions)
      codes.append(
        one.solution.code if is_whole else _without_middle(one, kept)
      )
    return self._filled(codes, 0)

  def _filled(self, codes: Sequence[str], n: int) -> str:
    fields = {'measure': self._measure}
    for prefix, one, code in zip(('', 'second_'), self._solutions, codes):
      of_it = {
        'plan': one.solution.plan,
        'code': code.rstrip(self._bare),
        'output': _end_of(one.output, n),
        'error': _error_of(one.output),
        'failure': ': '.join(filter(None, (one.outcome, one.reason))),
        'score': 'none' if one.score is None else f'{one.score:.5g}',
      }
      fields |= {prefix + name: text for name, text in of_it.items()}
    return self._words.format(**fields)


def _half(one: Previous) -> int:
  return len(one.solution.code) // 2


def _without_middle(one: Previous, n: int) -> str:
  code = one.solution.code
  return f'{code[:n]}\n# [...]\n{_end_of(code, n)}'


def _own_lines(one: Previous, other: Previous) -> Previous:
  """A solution with those lines alone that the other's program does not have."""
  known = set(other.solution.code.splitlines())
  lines = one.solution.code.splitlines(keepends=True)
  code = ''.join(line for line in lines if line.rstrip('\n') not in known)
  return dataclasses.replace(one, solution=Solution(one.solution.plan, code))


def _error_of(output: str) -> str:
  """The end of an output from the last exception on; its last line where there is none."""
  said = output.rstrip('\n')
  found = [match.start() for match in _ERROR.finditer(said)]
  return said[found[-1] :] if found else said.rpartition('\n')[2]


def _end_of(text: str, n: int) -> str:
  return text[max(len(text) - n, 0) :]


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
