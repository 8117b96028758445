"""Each figure of benchmarks.readability counts what its name says."""

import subprocess

import pytest

from benchmarks import readability

_SOURCE = '''\
"""Of a module: its first word is not counted, ours in it is."""


class Engine:
  """What a class begins with."""

  def draw(self, prompt, seed: int, *rest, **options):
    """Draws a completion; whoever asks first
    is told first."""


def many(a: int, b: int, c: int, d: int, e: int, f: int, g: int, h: int):
  """Whether eight arguments are too many."""
  if config.loop == 'agent' or stages.get(config.loop):
    related('env.seed', 'loop')
  return loop


PLACES = ('loop', 'told')
'''


@pytest.fixture
def root(tmp_path):
  (tmp_path / 'jaxagent' / 'inner').mkdir(parents=True)
  (tmp_path / 'jaxagent' / 'one.py').write_text(_SOURCE)
  (tmp_path / 'jaxagent' / 'inner' / 'two.py').write_text('')
  (tmp_path / 'jaxagent' / 'inner' / 'three.py').write_text('')
  (tmp_path / 'configs').mkdir()
  return tmp_path


def _lines(root, name: str) -> list[int]:
  return [case.line for case in readability.measure(root).cases[name]]


def test_fragments_are_of_classes_and_functions_by_their_first_word(root):
  assert _lines(root, 'fragments') == [5]
  assert readability.measure(root).docstrings == 3
  assert readability.fragment('Of one step.')
  assert not readability.fragment('Offers one step.')
  assert not readability.fragment('')


def test_private_words_are_counted_in_docstrings_only_and_modules_too(root):
  assert _lines(root, 'private') == [1, 8, 9]


@pytest.mark.parametrize(('lines', 'found'), [(60, 0), (61, 1)])
def test_a_function_is_long_from_61_lines_on(root, lines, found):
  source = 'def f():\n' + '  x = 1\n' * (lines - 1)
  (root / 'configs' / 'long.py').write_text(source)
  assert len(_lines(root, 'long')) == found


def test_arguments_and_types_leave_out_self_and_stars(root):
  assert _lines(root, 'arguments') == [12]
  assert _lines(root, 'untyped') == [7]
  assert readability.measure(root).parameters == 10


def test_loops_are_comparisons_look_ups_and_rows_of_rules(root):
  assert _lines(root, 'loops') == [14, 14, 15]


def test_folders_and_the_top_are_counted_by_their_python_files(root):
  (root / 'jaxagent' / 'inner' / 'page.html').write_text('')
  figures = readability.measure(root)
  assert (figures.top_modules, figures.largest_folder) == (1, 2)


def test_a_folder_without_sources_is_refused_with_its_name(tmp_path):
  with pytest.raises(FileNotFoundError, match=f'{tmp_path} holds no Python'):
    readability.measure(tmp_path)


def test_a_commit_is_read_as_it_was_beside_the_tree_as_it_is(
  root, monkeypatch, capsys
):
  def git(*words):
    who = ('-c', 'user.name=a', '-c', 'user.email=a@b')
    subprocess.run(['git', '-C', root, *who, *words], check=True)

  (root / 'configs' / 'base.py').write_text('')
  git('init', '-q')
  git('add', '.')
  git('commit', '-qm', 'all')
  (root / 'jaxagent' / 'one.py').write_text('')
  monkeypatch.setattr(readability, 'ROOT', root)
  readability.main(['--against', 'HEAD'])
  shown = capsys.readouterr().out.splitlines()
  assert [line.split()[-3:] for line in shown if 'private' in line] == [
    ['0', '3', '0']
  ]
  with pytest.raises(SystemExit, match='--against 0123456: .*unshallow'):
    readability.main(['--against', '0123456'])
