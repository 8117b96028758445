"""A recipe that cannot be used is refused before any work, by member and file."""

from __future__ import annotations

import pathlib
import shlex
import subprocess
import sys

import pytest

from jaxagent import metrics
from jaxagent.config import base as bases
from jaxagent.config import recipe, renamed, sections
from jaxagent.recipes import __main__ as command
from jaxagent.records import codec
from tests.runs import environment

ROOT = pathlib.Path(__file__).parents[2]
GOOD = """
from __future__ import annotations
import dataclasses
from jaxagent.options import Section, option
from jaxagent.recipes.one_turn import OneTurn
from jaxagent.types import NoReward, Record

@dataclasses.dataclass(frozen=True)
class Options(Section):
  kept: int = option(3, help='Ideas kept.')

@dataclasses.dataclass(frozen=True, kw_only=True)
class PlainRecord(Record):
  KIND = 'plain'
  DERIVED_FROM = ('score_after', 'best')
  best: float

  def derive(self, switches={}):
    if self.score_after is None:
      return -1.0
    return self.score_after / self.best

class Plain(OneTurn):
  name = 'plain'
  record_type = PlainRecord
  sections = {'plain': Options}
  metric_names = {'plain/rate': 'Share of good ones.'}

  def problems(self, tasks):
    return {}

  def carry_out(self, problem, response, job_id):
    raise AssertionError('never called')
"""
CONFIG = """
from jaxagent.config.base import base

def get_config(arg=''):
  return base('{place}').lock()
"""


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch):
  """What a recipe makes known is forgotten after its test."""
  monkeypatch.setattr(codec, '_known', dict(codec._known))
  monkeypatch.setattr(codec, '_files', dict(codec._files))
  monkeypatch.setattr(sections, '_added', dict(sections._added))
  monkeypatch.setattr(metrics, '_added', dict(metrics._added))
  monkeypatch.setattr(sys, 'path', list(sys.path))


def _written(folder: pathlib.Path, old: str = '', new: str = '') -> str:
  """Writes the good recipe with one change; returns its place."""
  assert old in GOOD
  file = folder / 'own.py'
  file.write_text(GOOD.replace(old, new) if old else GOOD)
  return f'{file}:Plain'


def _main(folder: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess:
  """Runs a command of jaxagent outside of the checkout."""
  return subprocess.run(
    [sys.executable, '-m', *arguments],
    cwd=folder,
    env=environment(),
    capture_output=True,
    text=True,
    timeout=60,
  )


def _refused(done: subprocess.CompletedProcess) -> str:
  """Returns the one line with which a command refused."""
  assert done.returncode == 2, (done.stdout, done.stderr)
  assert done.stderr.count('\n') == 1, done.stderr
  assert done.stderr.startswith('error: ')
  return done.stderr


def test_the_recipe_that_the_wrong_ones_are_made_of_is_accepted(tmp_path):
  place = _written(tmp_path)
  assert recipe.load(place).name == 'plain'
  assert bases.base(place).plain.kept == 3


DERIVE = """
    if self.score_after is None:
      return -1.0
    return self.score_after / self.best
"""
WRONG = {
  'no Python': ("name = 'plain'", "name = 'plain", 'own.py does not import: Syntax'),
  'missing module': (
    'import dataclasses', 'import not_there_at_all',
    'own.py does not import: ModuleNotFoundError: .*not_there_at_all',
  ),
  'missing class': ('class Plain(', 'class Other(', 'own.py has no class Plain'),
  'no recipe': ('Plain(OneTurn)', 'Plain', 'Plain in .*own.py is no recipe'),
  'no name': ("name = 'plain'", 'pass', 'Plain in .*own.py lacks the member name'),
  'name is no text': ("name = 'plain'", 'name = 5', 'own.py lacks the member name'),
  'no record': ('record_type = PlainRecord', '', 'own.py lacks the member record_type'),
  'record is none': (
    'record_type = PlainRecord', 'record_type = dict',
    "own.py lacks the member record_type: <class 'dict'> is no subclass",
  ),
  'no prompts': ('def problems(', 'def other(', 'own.py lacks the member problems'),
  'no execution': ('def carry_out(', 'def other(', 'own.py lacks the member carry_out'),
  'options of another name': (
    "sections = {'plain'", "sections = {'rl'",
    "Plain in .*own.py: section 'rl' is taken",
  ),
  'options that are none': (
    'Options}', 'int}', "own.py: section 'plain'=<class 'int'> must be a frozen",
  ),
  'a list of options': (
    "sections = {'plain': Options}", 'sections = [Options]',
    r'own.py has sections=\[.*; it must be a dictionary',
  ),
  "another's metric": (
    "'plain/rate'", "'actor/pg_loss'", "own.py: metric 'actor/pg_loss' of a recipe",
  ),
  'metric without prefix': (
    "'plain/rate'", "'rate'", "own.py: metric 'rate' of a recipe must be PREFIX/NAME",
  ),
  'KIND of the package': (
    "KIND = 'plain'", "KIND = 'step'", "KIND='step' is that of StepRecord in .*step.py",
  ),
  'KIND of a recipe that is not imported': (
    "KIND = 'plain'", "KIND = 'idea'", "KIND='idea' is that of .*IdeaRecord",
  ),
  'unknown field': ("'score_after', 'best'", "'luck',", 'DERIVED_FROM names luck'),
  'reward NaN': (
    DERIVE, "\n    return float('nan')\n", 'PlainRecord in .*own.py.derive: .*gives nan',
  ),
  'forgotten return': (DERIVE, '\n    pass\n', 'own.py.derive: .*gives None'),
  'misspelt name': (
    '/ self.best', '/ besst', "own.py.derive: name 'besst' is not defined",
  ),
}  # fmt: skip


@pytest.mark.parametrize('name', WRONG)
def test_a_wrong_recipe_is_refused_by_member_and_file(tmp_path, name):
  old, new, problem = WRONG[name]
  place = _written(tmp_path, old, new)
  with pytest.raises(ValueError, match=problem) as found:
    recipe.load(place)
  assert '\n' not in str(found.value)
  assert str(found.value).startswith(f'config.recipe={place!r}')


def test_a_record_whose_fields_must_fit_together_is_not_refused(tmp_path):
  """Made-up fields may contradict each other; what is made up proves nothing then."""
  place = _written(
    tmp_path, DERIVE,
    '\n    if self.score_after is None:\n      return -1.0\n'
    "    raise ValueError('best is below the start')\n",
  )  # fmt: skip
  assert recipe.load(place).name == 'plain'


def test_reading_a_recipe_imports_no_jax(tmp_path):
  """The audit reads it, too, and every process before devices are counted."""
  assert command.main(['new', 'demo', '--dir', str(tmp_path)]) == 0
  program = (
    'import sys; from jaxagent.config import recipe; '
    f"recipe.load('{tmp_path}/recipe.py:Demo'); print('jax' in sys.modules)"
  )
  done = subprocess.run(
    [sys.executable, '-c', program], capture_output=True, text=True, timeout=60
  )
  assert done.stdout == 'False\n', done.stderr


def test_recipe_and_config_may_be_one_file(tmp_path):
  """Which is read twice: by the command line, and for the recipe."""
  file = tmp_path / 'own.py'
  decorated = GOOD.replace(
    '@dataclasses.dataclass(frozen=True, kw_only=True)',
    'from jaxagent.records import register\n@register\n'
    '@dataclasses.dataclass(frozen=True, kw_only=True)',
  )
  file.write_text(decorated + CONFIG.format(place=f'{file}:Plain'))
  done = _main(tmp_path, 'jaxagent.main', f'--config={file}', '--dry_run')
  assert done.returncode == 0, done.stderr
  assert 'held-in china-scanline' in done.stdout


def test_two_recipes_with_one_kind_of_record_are_refused_by_name(tmp_path):
  first, second = tmp_path / 'first', tmp_path / 'second'
  for folder in (first, second):
    folder.mkdir()
  recipe.load(_written(first))
  with pytest.raises(
    ValueError, match="KIND='plain' is that of .*first/own.py"
  ):
    recipe.load(_written(second))


@pytest.mark.parametrize(
  'name', ('missing module', 'no execution', 'reward NaN')
)
def test_the_command_refuses_a_wrong_recipe_in_one_line(tmp_path, name):
  old, new, problem = WRONG[name]
  config = tmp_path / 'config.py'
  config.write_text(CONFIG.format(place=_written(tmp_path, old, new)))
  done = _main(tmp_path, 'jaxagent.main', f'--config={config}')
  assert problem.split(':')[0].split('.*')[-1] in _refused(done)
  assert not (tmp_path / 'workdir').exists()


def test_the_command_refuses_a_recipe_whose_options_the_config_lacks(tmp_path):
  config = tmp_path / 'config.py'
  config.write_text(CONFIG.format(place='stepwise'))
  done = _main(
    tmp_path, 'jaxagent.main', f'--config={config}',
    f'--config.recipe={_written(tmp_path)}',
  )  # fmt: skip
  assert 'has options config.plain, which this config lacks' in _refused(done)


def test_the_command_refuses_an_unknown_stage_with_the_choices(tmp_path):
  config = tmp_path / 'config.py'
  config.write_text(CONFIG.format(place=_written(tmp_path)))
  done = _main(
    tmp_path, 'jaxagent.main', f'--config={config}', '--config.stage=collect'
  )
  assert 'choose one of: all, sft, evaluate' in _refused(done)


@pytest.mark.parametrize(
  'arguments',
  (['--config.loop=sft'], ['--config.loop', 'sft'], ['-config.loop=sft']),
)
def test_the_former_key_on_the_command_line_is_replaced_and_named(
  capsys, arguments
):
  assert renamed.arguments(['--x', *arguments, '--y']) == [
    '--x', '--config.recipe=stepwise', '--config.stage=sft', '--y',
  ]  # fmt: skip
  assert "config.loop='sft' is now config.recipe='stepwise'" in (
    capsys.readouterr().err
  )


@pytest.mark.parametrize('value', renamed.LOOPS)
def test_every_former_loop_is_a_recipe_with_that_stage(value):
  name, stage = renamed.LOOPS[value]
  assert stage in recipe.load(name).stages


def test_the_former_key_in_a_config_file_is_replaced_and_named(tmp_path):
  config = tmp_path / 'config.py'
  config.write_text(
    'from configs import common\n\n'
    'def get_config():\n'
    '  config = common.base()\n'
    "  config.loop = 'rl_for_mle'\n"
    '  return config.lock()\n'
  )
  done = subprocess.run(
    [sys.executable, '-m', 'jaxagent.main', f'--config={config}', '--dry_run'],
    cwd=ROOT,
    env=environment(),
    capture_output=True,
    text=True,
    timeout=60,
  )
  assert done.returncode == 0, done.stderr
  assert (
    "config.loop='rl_for_mle' is now config.recipe='solutions'" in done.stderr
  )


@pytest.mark.parametrize('way', ['main', 'read'])
@pytest.mark.parametrize(
  'option, recipe, stage',
  [
    ('--config.loop=episodewise_ppo', 'episodewise', 'all'),
    ('--config.loop=stepwise_ppo', 'stepwise', 'all'),
    ('--config.recipe=episodewise', 'episodewise', 'collect'),
    ('--config.stage=sft', 'stepwise', 'sft'),
    ('--config.seed=1', 'stepwise', 'collect'),
  ],
)
def test_the_command_line_stands_above_a_former_key_of_the_file(
  tmp_path, way, option, recipe, stage
):
  config = tmp_path / 'config.py'
  config.write_text(
    'from jaxagent.config.base import base\n\n'
    'def get_config():\n'
    '  config = base()\n'
    "  config.loop = 'collect'\n"
    '  return config.lock()\n'
  )
  program = (
    'import sys\n'
    'from jaxagent.config import command_line, settings\n'
    'from jaxagent import main\n'
    'from jaxagent.recipes import run\n'
    'say = lambda config: print("GOT", config.recipe, config.stage)\n'
    'run.run = say\n'
    'if sys.argv.pop(1) == "main":\n'
    '  main.cli()\n'
    'else:\n'
    '  config = command_line.read(sys.argv[1:])\n'
    '  settings.prepare(config)\n'
    '  say(config)\n'
  )
  done = subprocess.run(
    [sys.executable, '-c', program, way, f'--config={config}', option],
    env=environment(), capture_output=True, text=True, timeout=60,
  )  # fmt: skip
  assert f'GOT {recipe} {stage}\n' in done.stdout, done.stderr
  assert done.stderr.count('goes with the next version') == 1


def test_an_unknown_former_value_is_refused_with_both_names(tmp_path):
  config = tmp_path / 'config.py'
  config.write_text(CONFIG.format(place='stepwise'))
  done = _main(
    tmp_path, 'jaxagent.main', f'--config={config}', '--config.loop=other'
  )
  assert 'config.loop is now config.recipe and config.stage' in _refused(done)


@pytest.mark.parametrize(
  'name, problem',
  [
    ('Demo', 'must be a word of small letters'),
    ('1st', 'must be a word'),
    ('class', 'must be a word'),
    ('items', 'must be a word'),
    ('../up', 'must be a word'),
    ('stepwise', 'is taken'),
    ('rl', 'is taken'),
    ('step', 'is taken'),
    ('idea', 'is taken'),
    ('', 'must be a word'),
  ],
)
def test_a_name_that_cannot_be_a_recipes_is_refused(
  tmp_path, capsys, name, problem
):
  assert command.main(['new', name, '--dir', str(tmp_path / 'new')]) == 2
  error = capsys.readouterr().err
  assert problem in error and error.count('\n') == 1
  assert not (tmp_path / 'new').exists()


def test_a_folder_that_cannot_be_made_is_named_in_one_line(tmp_path, capsys):
  (tmp_path / 'file').write_text('')
  folder = tmp_path / 'file' / 'new'
  assert command.main(['new', 'demo', '--dir', str(folder)]) == 2
  error = capsys.readouterr().err
  assert error == f'error: --dir={folder} cannot be written: Not a directory\n'


@pytest.mark.parametrize('mark', (':', '\\u', '"'))
def test_a_folder_whose_config_could_not_be_named_is_refused(
  tmp_path, capsys, mark
):
  folder = tmp_path / f'a{mark}b'
  assert command.main(['new', 'demo', '--dir', str(folder)]) == 2
  error = capsys.readouterr().err
  assert f'holds a {mark[0]}, which' in error and error.count('\n') == 1
  assert not folder.exists()


@pytest.mark.parametrize(
  'text, problem',
  [('x = 1', 'it has no function get_config'),
   ('def get_config(): return 5', 'get_config gives a int')],
)  # fmt: skip
def test_a_config_file_without_options_is_refused_by_name(
  tmp_path, text, problem
):
  config = tmp_path / 'config.py'
  config.write_text(text)
  assert problem in _refused(
    _main(tmp_path, 'jaxagent.main', f'--config={config}')
  )


def test_a_written_recipe_is_never_overwritten(tmp_path, capsys):
  assert command.main(['new', 'demo', '--dir', str(tmp_path)]) == 0
  (tmp_path / 'recipe.py').write_text('mine')
  (tmp_path / 'config.py').unlink()
  capsys.readouterr()
  assert command.main(['new', 'demo', '--dir', str(tmp_path)]) == 2
  assert 'recipe.py is there already' in capsys.readouterr().err
  assert (tmp_path / 'recipe.py').read_text() == 'mine'
  assert not (tmp_path / 'config.py').exists()


@pytest.mark.parametrize('name', ('demo', 'my_idea2'))
def test_a_written_recipe_can_be_planned_outside_of_the_checkout(
  tmp_path, capsys, name
):
  folder = tmp_path / "it's here"
  assert command.main(['new', name, '--dir', str(folder)]) == 0
  *_, said = capsys.readouterr().out.splitlines()
  assert shlex.split(said)[-1] == f'--config={folder / "config.py"}'
  done = _main(
    tmp_path, 'jaxagent.main', f'--config={folder / "config.py"}', '--dry_run'
  )
  assert done.returncode == 0, done.stderr
  assert 'held-in digits, wine' in done.stdout
