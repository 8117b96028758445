"""What a command or a file's name in a page refers to, and whether it exists."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import shlex
from collections.abc import Iterator, Mapping

from jaxagent import cli
from jaxagent.config.base import base

ROOT = pathlib.Path(__file__).parents[1]
TOPS = ('benchmarks', 'configs', 'docs', 'jaxagent', 'launch_scripts', 'tests')
# Programs of others, whose options are not looked at.
OTHERS = {'mkdocs', 'mypy', 'pip', 'pytest', 'python3', 'ruff', 'venv'}
_BLOCK = re.compile(r'^```(\w*)\n(.*?)^```', re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r'`([^`]+)`')
_COMMAND = re.compile(r'(bash|python|jaxagent|\.venv/bin/\w+) ')


def commands(page: str) -> Iterator[str]:
  """Yields the shell commands of a page's blocks and of its inline code."""
  for language, block in _BLOCK.findall(page):
    if language not in ('', 'bash'):
      continue
    for line in block.replace('\\\n', ' ').splitlines():
      yield from _parts(line)
  for code in _INLINE.findall(_BLOCK.sub('', page)):
    text = ' '.join(code.split())
    if _COMMAND.match(text):
      yield from _parts(text)


def files(page: str) -> Iterator[str]:
  """Yields the names of files and folders of the checkout in a page's code."""
  for code in _INLINE.findall(_BLOCK.sub('', page)):
    if re.fullmatch(rf'({"|".join(TOPS)})/[\w./-]*', code):
      yield code
  yield from re.findall(r'\]\(([^)#:]+)(?:#[^)]*)?\)', page)


def problems(command: str) -> list[str]:
  """Returns what a command names that there is not."""
  words = shlex.split(command, comments=True)
  while words and re.match(r'[A-Z_]+=', words[0]):
    words = words[1:]
  if not words:
    return []
  program, *rest = words
  program = program.removeprefix('.venv/bin/')
  found = [f'no file {w}' for w in rest if _is_missing(w)]
  if program == 'jaxagent':
    return found + _of_jaxagent(rest)
  if program in ('python', 'python3') and rest[:1] == ['-m']:
    return found + _of_module(rest[1], rest[2:])
  if program == 'bash':
    return found or [
      f'{rest[0]} has no --{name}'
      for name in _flags(rest[1:])
      if not _is_option(name) and f'--{name} ' not in _script(rest[0])
    ]
  return found if program in OTHERS else [*found, f'no program {program}']


def _parts(line: str) -> Iterator[str]:
  text = re.sub(r'(^|\s)#.*', '', line).strip()
  yield from (part.strip() for part in text.split('&&') if part.strip())


def _is_missing(word: str) -> bool:
  name = word.removeprefix('--config=').split(':')[0]
  return (
    name.split('/')[0] in TOPS and '/' in name and not (ROOT / name).exists()
  )


def _script(name: str) -> str:
  """A launcher's text, with what it reads its flags by."""
  more = {'launch_scripts/test.sh': 'tests/conftest.py'}
  shared = more.get(name, 'launch_scripts/_launch.sh')
  text = (ROOT / name).read_text() + (ROOT / shared).read_text()
  for options in re.findall(r'OPTIONS=\(([^)]*)\)', text):
    text += ''.join(f' --{option}=' for option in options.split())
  return re.sub(r'(--[\w-]+)', r'\1 ', text)


def _of_jaxagent(words: list[str]) -> list[str]:
  if words[:1] == ['--help']:
    return []
  if words[0] not in cli.VERBS:
    return [f'no verb {words[0]}']
  if len(words) == 1:
    return []
  try:
    made = cli.command(words)
  except cli.Refused as error:
    return [str(error)]
  return _of_module(made[1], made[2:])


def _of_module(module: str, words: list[str]) -> list[str]:
  if module in OTHERS:
    return []
  spec = importlib.util.find_spec(module)
  if spec is None:
    return [f'no module {module}']
  if spec.submodule_search_locations is not None:
    spec = importlib.util.find_spec(f'{module}.__main__')
  text = pathlib.Path(spec.origin).read_text() if spec else ''
  found = [
    f'{module} has no --{name}'
    for name in _flags(words)
    if not _is_option(name) and not re.search(rf"'(--)?{name}'", text)
  ]
  # A word such as `new` or `self_check`, where the program has several.
  if words and re.fullmatch('[a-z_]+', words[0]) and 'add_subparsers' in text:
    found += [f'{module} has no {words[0]}'] * (f"'{words[0]}'" not in text)
  return found


def _flags(words: list[str]) -> Iterator[str]:
  for word in words:
    if word.startswith('--') and len(word) > 2:
      yield word[2:].partition('=')[0]


def _is_option(name: str) -> bool:
  """Whether it is an option of every experiment, as `config.SECTION.KEY`."""
  if not name.startswith('config.'):
    return False
  node = base()
  for part in name.removeprefix('config.').split('.'):
    if part.isupper():  # stands for any
      return True
    if not isinstance(node, Mapping) and not hasattr(node, 'keys'):
      return False
    if part not in node:
      return False
    node = node[part]
  return True
