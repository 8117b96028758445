"""The packages, which of them may import which, and docs/architecture.md about them.

That page has the same rules; a package that is added gets its place here and there.
"""

import ast
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / 'jaxagent'

# Packages that run beside many processes: never jax, not even indirectly.
HOST = {
  'types',
  'errors',
  'files',
  'analysis',
  'records',
  'clock',
  'options',
  'sandbox',
  'envs',
  'rewards',
  'llm',
  'stand_ins',
  'data',
  'interactions',
  'metrics',
  'traces',
  'audit',
  'why',
  'report',
  'tasks',
  'graders',
  'grade',
  'instrumentation',
  'live',
  'trackers',
}
# rollout is a host-side package but for these files.
ROLLOUT_ON_DEVICE = {
  'devices',
  'native_engine',
  'native_programs',
  'nccl_group',
  'nccl_sync',
  'sampling',
}
DEVICE = {
  'devices',
  'algorithms',
  'models',
  'learner',
  'checkpoint',
}
ABOVE = {
  '__main__',
  'cli',
  'compiled',
  'config',
  'conversations',
  'recipes',
  'runtime',
  'training',
  'main',
  'pause',
  'plan',
  'testing',
}
# Package -> packages it may import. Those not named here are free of this check.
MAY_IMPORT = {
  'types': set(),
  'errors': set(),
  'records': {'errors', 'types', 'rewards', 'files'},
  'clock': {'types'},
  'files': {'clock', 'errors'},
  'options': set(),
  'algorithms': {'types'},
  'devices': {'types', 'errors'},
  'checkpoint': {'files'},
  'models': {
    'options',
    'types',
    'files',
    'devices',
    'algorithms',
    'checkpoint',
  },
  'learner': {'options', 'types', 'devices', 'models', 'algorithms', 'data'},
  'sandbox': {'options', 'types', 'clock'},
  'llm': {'options', 'types', 'clock', 'files', 'sandbox', 'envs'},
  'stand_ins': {'types', 'envs', 'files'},
  'graders': {'types'},
  'grade': {'types', 'files', 'graders'},
  'rewards': {'options', 'types'},
  'instrumentation': {'files', 'rewards'},
  'envs': {
    'options',
    'types',
    'records',
    'clock',
    'sandbox',
    'instrumentation',
    'graders',
    'files',
  },
  'data': {
    'types',
    'records',
    'clock',
    'files',
    'envs',
    'llm',
    'stand_ins',
  },
  'interactions': {'errors', 'types'},
  'rollout': {
    'errors',
    'options',
    'types',
    'records',
    'interactions',
    'clock',
    'files',
    'sandbox',
    'envs',
    'data',
    'devices',
    'models',
  },
  'metrics': {'types'},
  'analysis': {'types', 'records', 'envs', 'traces', 'graders'},
  'traces': {'types', 'records', 'files', 'envs'},
  'report': {'types', 'records', 'metrics', 'analysis'},
  'audit': {'types', 'records', 'rewards', 'graders', 'envs'},
  'why': {'rollout'},
  'live': {'files', 'report', 'rollout'},
  'trackers': {'files'},
  'tasks': {
    'types',
    'clock',
    'files',
    'sandbox',
    'envs',
    'graders',
    'stand_ins',
  },
}
# Packages that see the config, from the bottom up: each may import those before it.
READ_CONFIG = ('config', 'runtime', 'training', 'recipes', 'main')
# Packages above the recipes: only these others may import them.
TOPS = {'compiled': {'plan'}}
CONFIG_READERS = {*READ_CONFIG, 'testing'}


def _modules() -> list[pathlib.Path]:
  return sorted(PACKAGE.rglob('*.py'))


def _room(path: pathlib.Path) -> str:
  parts = path.relative_to(PACKAGE).with_suffix('').parts
  return '' if parts[0] == '__init__' else parts[0]


def _imports(path: pathlib.Path, *, for_types: bool = True) -> set[str]:
  """Dotted names that the file imports anywhere, functions included.

  for_types: with those that a type checker alone reads.
  """
  tree = ast.parse(path.read_text(encoding='utf-8'))
  if not for_types:
    tree.body = [
      node
      for node in tree.body
      if not (
        isinstance(node, ast.If) and 'TYPE_CHECKING' in ast.unparse(node.test)
      )
    ]
  found = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      found |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
      base = node.module or ''
      if node.level:
        here = path.relative_to(ROOT).with_suffix('').parts[: -node.level]
        base = '.'.join([*here, base]).rstrip('.')
      found |= {base} | {f'{base}.{alias.name}' for alias in node.names}
  return found


def _rooms_of(names: set[str]) -> set[str]:
  rooms = {n.split('.')[1] for n in names if n.startswith('jaxagent.')}
  return {r for r in rooms if not r.startswith('__')}


def _is_host(path: pathlib.Path) -> bool:
  room = _room(path)
  if room == 'rollout':
    return path.stem not in ROLLOUT_ON_DEVICE
  return room in HOST


@pytest.mark.parametrize(
  'path', _modules(), ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_a_file_imports_only_the_packages_that_its_package_may_import(path):
  room, names = _room(path), _imports(path)
  if room in MAY_IMPORT:
    wrong = _rooms_of(names) - MAY_IMPORT[room] - {room}
    assert not wrong, (
      f'{room} may import {sorted(MAY_IMPORT[room])}, not {sorted(wrong)}; '
      'move the code, or change the rule here and in docs/architecture.md'
    )
  if room in READ_CONFIG:
    later = READ_CONFIG[READ_CONFIG.index(room) + 1 :]
    run = _rooms_of(_imports(path, for_types=False))
    assert not (wrong := run & set(later)), (
      f'{room} stands below {sorted(wrong)}: {" <- ".join(READ_CONFIG)}'
    )
  for top, users in TOPS.items():
    assert top not in _rooms_of(names) or room in users | {top, 'testing'}, (
      f'{top} stands above the other packages; only {sorted(users)} may import it'
    )
  if room not in CONFIG_READERS and room:
    tops = {n.split('.')[0] for n in names}
    assert not {'ml_collections', 'configs'} & tops, (
      f'only these see the config object: {sorted(CONFIG_READERS)}'
    )
  if _is_host(path):
    tops = {n.split('.')[0] for n in names}
    wrong = tops & {'jax', 'jaxlib', 'flax', 'optax', 'orbax'}
    assert not wrong, f'a host-side file imports {sorted(wrong)}'


def test_every_package_is_host_side_device_side_or_above():
  rooms = {_room(p) for p in _modules()} - {''}
  assert rooms <= HOST | DEVICE | ABOVE | {'rollout'}


def test_host_side_packages_import_without_jax():
  """A fresh interpreter imports them all: jax may not come in indirectly either."""
  names = []
  for path in _modules():
    parts = path.relative_to(ROOT).with_suffix('').parts
    if not _is_host(path) or parts[-1] == '__main__':
      continue
    names.append('.'.join(p for p in parts if p != '__init__'))
  program = (
    'import importlib, sys\n'
    f'for name in {names!r}:\n'
    '  importlib.import_module(name)\n'
    '  assert "jax" not in sys.modules, name + " brings jax in"\n'
  )
  done = subprocess.run(
    [sys.executable, '-c', program],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=120,
  )
  assert done.returncode == 0, done.stderr[-2000:]


def test_architecture_page_names_every_package():
  text = (ROOT / 'docs' / 'architecture.md').read_text(encoding='utf-8')
  for room in {_room(p) for p in _modules()} - {''}:
    assert f'`{room}' in text, f'{room} is missing in docs/architecture.md'


def _defined(path: pathlib.Path) -> set[str]:
  """Names of a file's functions and classes, and `Class.method`."""
  found = set()
  for node in ast.parse(path.read_text(encoding='utf-8')).body:
    name = getattr(node, 'name', '')
    found |= {name} - {''}
    if isinstance(node, ast.ClassDef):
      inner = (getattr(part, 'name', '') for part in node.body)
      found |= {f'{name}.{part}' for part in inner if part}
  return found


def test_architecture_page_names_functions_that_exist():
  text = (ROOT / 'docs' / 'architecture.md').read_text(encoding='utf-8')
  named = re.findall(r'`([\w/]+\.py):\s+([\w.,\s]+)`', text)
  assert len(named) > 30, 'the page names file and function at each step'
  for file, names in named:
    path = PACKAGE / file
    assert path.is_file(), f'docs/architecture.md: there is no {file}'
    for name in re.split(r',\s+', names):
      assert name in _defined(path), f'docs/architecture.md: {file}: {name}'
