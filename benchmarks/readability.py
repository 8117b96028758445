"""Figures of readability that `ast` gives: now, and at a commit.

  python -m benchmarks.readability [--against b279f23]
  python -m benchmarks.readability --list fragments [jaxagent/rollout ...]

Counts over `jaxagent/` and `configs/` without importing them. The figures are
aims to be read with sense, not gates; `--list` prints path:line of each case.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import io
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence

ROOT = pathlib.Path(__file__).parents[1]
PARTS = ('jaxagent', 'configs')
LIST = ('fragments', 'private', 'long', 'arguments', 'untyped', 'loops')
MAX_LINES, MAX_ARGUMENTS = 60, 7

# A docstring that begins with one of these is half of a sentence whose other
# half the reader has to guess: neither a verb nor a noun that stands alone.
FRAGMENT = frozenset(
  'After As Before Between By For From In None Nothing Of On Once That Those '
  'To Until What When Where Which Whoever Whose With Without'.split()
)
# Words that this package once used in a sense of its own.
PRIVATE = re.compile(
  r'\b(told|said|ours|our fault|whoever|nobody|mend(s|ed|ing)?|spoken|'
  r'goes on)\b',
  re.IGNORECASE,
)
# The config's keys that name the experiment.
EXPERIMENT = ('loop', 'recipe')

Functions = ast.FunctionDef | ast.AsyncFunctionDef


@dataclasses.dataclass(frozen=True)
class Case:
  """One counted place. path is relative to the root; line is 1-based."""

  path: str
  line: int
  text: str

  def __str__(self) -> str:
    return f'{self.path}:{self.line}: {self.text}'


@dataclasses.dataclass(frozen=True)
class Figures:
  """What one tree holds. cases: by the names of LIST."""

  docstrings: int  # of classes and functions
  parameters: int  # without self, cls, *args and **kwargs
  top_modules: int  # Python files directly in jaxagent/
  largest_folder: int  # Python files in the folder that has most
  cases: dict[str, list[Case]]

  def share(self, name: str, of: int) -> float:
    return 100 * len(self.cases[name]) / of if of else 0.0


def measure(root: pathlib.Path) -> Figures:
  """Counts over the sources below `root`; raises OSError if there are none."""
  paths = [p for part in PARTS for p in sorted((root / part).rglob('*.py'))]
  if not paths:
    raise FileNotFoundError(
      f'{root} holds no Python file below {" or ".join(PARTS)}; give the root '
      'of a checkout.'
    )
  cases: dict[str, list[Case]] = {name: [] for name in LIST}
  docstrings = parameters = 0
  folders: dict[pathlib.Path, int] = {}
  for path in paths:
    folders[path.parent] = folders.get(path.parent, 0) + 1
    name = path.relative_to(root).as_posix()
    for node in ast.walk(ast.parse(path.read_text(), name)):
      if isinstance(node, Functions):
        parameters += _function(node, name, cases)
      if isinstance(node, (ast.Module, ast.ClassDef, Functions)):
        docstrings += _docstring(node, name, cases)
      if _asks_experiment(node):
        line = getattr(node, 'lineno', 0)
        cases['loops'].append(Case(name, line, ast.unparse(node)))
  for found in cases.values():
    found.sort(key=lambda case: (case.path, case.line))
  top = folders.get(root / 'jaxagent', 0)
  return Figures(docstrings, parameters, top, max(folders.values()), cases)


def _docstring(node, path: str, cases: dict[str, list[Case]]) -> int:
  """Files the docstring's cases; returns 1 if a class or function has one."""
  text = ast.get_docstring(node)
  if not text:
    return 0
  line = node.body[0].lineno
  for number, words in enumerate(text.split('\n')):
    cases['private'] += [
      Case(path, line + number, f'{word.group()}: {words.strip()}')
      for word in PRIVATE.finditer(words)
    ]
  if isinstance(node, ast.Module):
    return 0
  if fragment(text):
    cases['fragments'].append(Case(path, line, text.split('\n')[0]))
  return 1


def fragment(text: str) -> bool:
  """Whether a docstring begins with a word of FRAGMENT."""
  first = re.match(r'\w+', text)
  return first is not None and first.group() in FRAGMENT


def _function(node, path: str, cases: dict[str, list[Case]]) -> int:
  """Files a function's cases; returns its number of parameters."""
  lines = node.end_lineno - node.lineno + 1
  if lines > MAX_LINES:
    cases['long'].append(Case(path, node.lineno, f'{node.name}, {lines} lines'))
  given = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
  given = [p for p in given if p.arg not in ('self', 'cls')]
  if len(given) > MAX_ARGUMENTS:
    cases['arguments'].append(
      Case(path, node.lineno, f'{node.name}, {len(given)} arguments')
    )
  cases['untyped'] += [
    Case(path, p.lineno, f'{node.name}({p.arg})')
    for p in given
    if p.annotation is None
  ]
  return len(given)


def _asks_experiment(node: ast.AST) -> bool:
  """Whether a node decides by the experiment's name.

  A comparison with `config.loop`, a look-up by it, or a call that is given the
  key as a string, as the rows of rules are.
  """
  if isinstance(node, ast.Compare):
    return any(map(_names_experiment, [node.left, *node.comparators]))
  if isinstance(node, ast.Subscript):
    return _names_experiment(node.slice)
  if not isinstance(node, ast.Call):
    return False
  if isinstance(node.func, ast.Attribute) and node.func.attr == 'get':
    return any(map(_names_experiment, node.args[:1]))
  return any(
    isinstance(a, ast.Constant) and a.value in EXPERIMENT for a in node.args
  )


def _names_experiment(node: ast.AST) -> bool:
  return isinstance(node, ast.Attribute) and node.attr in EXPERIMENT


def at_commit(commit: str) -> Figures:
  """Counts over a commit; raises ValueError if this clone does not have it."""
  packed = subprocess.run(
    ['git', '-C', str(ROOT), 'archive', commit, *PARTS], capture_output=True
  )
  if packed.returncode:
    raise ValueError(
      f'--against {commit}: {packed.stderr.decode().strip()}. Give a commit of '
      'this clone; a shallow one gets the rest by `git fetch --unshallow`.'
    )
  with tempfile.TemporaryDirectory() as folder:
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
      files.extractall(folder, filter='data')
    return measure(pathlib.Path(folder))


def rows(figures: Figures) -> Iterator[tuple[str, str, float]]:
  """(figure, aim, value) of each line of the table; shares in per cent."""
  f = figures
  yield 'docstrings of classes and functions', '', f.docstrings
  yield 'that begin with a fragment', '', len(f.cases['fragments'])
  yield 'the same in %', '<= 2', f.share('fragments', f.docstrings)
  yield 'private words in docstrings', '0', len(f.cases['private'])
  yield f'functions over {MAX_LINES} lines', '<= 5', len(f.cases['long'])
  name = f'functions over {MAX_ARGUMENTS} arguments'
  yield name, '<= 8', len(f.cases['arguments'])
  yield 'parameters without a type, %', '<= 5', f.share('untyped', f.parameters)
  yield 'places that ask which loop it is', '0', len(f.cases['loops'])
  yield "modules at the package's top", '<= 14', f.top_modules
  yield 'most files in one folder', '<= 24', f.largest_folder


def table(now: Figures, then: Figures, commit: str) -> str:
  """The figures of two trees side by side."""
  lines = [f'{"":36} {"aim":>6} {commit[:9]:>9} {"now":>9}']
  for (name, aim, new), (_, _, old) in zip(rows(now), rows(then)):
    lines.append(f'{name:36} {aim:>6} {_number(old):>9} {_number(new):>9}')
  return '\n'.join(lines)


def _number(value: float) -> str:
  return f'{value:,}' if isinstance(value, int) else f'{value:.1f}'


def main(argv: Sequence[str] | None = None) -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--against', default='b279f23', metavar='COMMIT')
  parser.add_argument('--list', choices=LIST, help='print path:line of each')
  parser.add_argument('under', nargs='*', help='list only below these folders')
  args = parser.parse_args(argv)
  now = measure(ROOT)
  if not args.list:
    try:
      print(table(now, at_commit(args.against), args.against))
    except ValueError as e:
      sys.exit(f'readability: {e}')
    return
  under = tuple(args.under) or PARTS
  for case in now.cases[args.list]:
    if case.path.startswith(under):
      print(case)


if __name__ == '__main__':
  main()
