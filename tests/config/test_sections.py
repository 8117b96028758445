"""Every option has one home; the config, its table and the page are made of it."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import pathlib
import re
import subprocess
import sys

import pytest
from ml_collections import ConfigDict

from configs import common, ml_agent, stepwise_ppo
from jaxagent.config import (
  checks,
  command_line,
  sections,
  settings,
  table,
)
from jaxagent.errors import UserError
from jaxagent.learner import LearnerConfig
from jaxagent.learner.config import LearnerOptions
from jaxagent.llm.config import Endpoint
from jaxagent.options import Section, option, relation
from jaxagent.training import device
from tests.runs import environment

ROOT = pathlib.Path(__file__).parents[2]
GOLDEN = ROOT / 'tests/golden/config_records.json'
RECORDS = json.loads(GOLDEN.read_text())
PAGES = (ROOT / 'README.md', *sorted((ROOT / 'docs').glob('*.md')))


@dataclasses.dataclass(frozen=True)
class Ideas(Section):
  kept: int = option(10, help='Ideas kept.')
  drawn: int = option(20, help='Ideas drawn.', advanced=True)
  extra: dict = option({}, help='{}: nothing.')

  relations = (
    relation(
      'kept',
      'drawn',
      holds=lambda kept, drawn: kept <= drawn,
      say='{at}kept={kept} is more than {at}drawn={drawn}; lower it.',
    ),
  )


@pytest.fixture
def ideas():
  config = common.base()
  common.add_section(config, 'ideas', Ideas)
  config.tasks_dir = str(ROOT / 'tasks')
  yield config
  del sections._added['ideas']


def _variant(name: str):
  file, _, variant = name.partition(':')
  return importlib.import_module(f'configs.{file}').get_config(variant)


def _record(name: str) -> dict[str, str]:
  """Hashes of all keys and values, and of what decides the results."""
  config = _variant(name)
  leaves = {key: repr(gone.value) for key, gone in sections.RETIRED.items()}
  for key, value in checks.leaves(config):
    leaves[key] = repr(value.to_dict() if hasattr(value, 'to_dict') else value)
  text = json.dumps(leaves, sort_keys=True)
  return {
    'config': hashlib.sha256(text.encode()).hexdigest()[:16],
    'record': settings.config_sha(config),
  }


def test_every_variant_has_a_record():
  others = set(ml_agent.COMPARED) | set(ml_agent._OTHERS)
  names = {f'ml_agent:{name}' for name in others}
  names |= {f'ml_agent:{name}-tiny' for name in ml_agent.COMPARED}
  names |= {
    f'{file}:{variant}'
    for file in ('stepwise_ppo', 'evaluate', 'sft')
    for variant in ('tiny', 'qwen2.5-7b')
  }
  names |= {
    f'rl_for_mle:{variant}'
    for variant in ('tiny', 'best-of', 'qwen2.5-3b', 'qwen2.5-7b-lora')
  }
  assert set(RECORDS) == names


@pytest.mark.parametrize('name', sorted(RECORDS))
def test_keys_and_values_of_every_variant_are_those_recorded(name):
  """And so a run that an older version began is taken up again.

  The hashes were made by the flat configs/common.py that came before sections. After
  a change that is meant: python -m tests.config.test_sections.
  """
  assert _record(name) == RECORDS[name]
  assert _variant(name).is_locked


def test_the_defaults_of_every_section_are_accepted():
  for section in sections.known().values():
    section()


def test_what_turns_an_option_off_is_in_its_help():
  silent = [
    key
    for key, made in sections.all_options()
    if made.default in (0, 0.0, '', ())
    and made.default is not False
    and key != 'seed'
    and f'{made.shown_default.replace("0.0", "0")}:' not in made.help
  ]
  assert silent == []


def test_an_option_that_no_preset_sets_and_no_page_names_is_advanced():
  base = dict(checks.leaves(common.base()))
  varied = {
    key
    for name in RECORDS
    for key, value in checks.leaves(_variant(name))
    if key not in base or repr(value) != repr(base[key])
  }
  headers = [
    importlib.import_module(f'configs.{f}').__doc__
    for f in {name.partition(':')[0] for name in RECORDS}
  ]
  pages = [page.read_text() for page in PAGES if page.stem != 'config']
  text = '\n'.join([*pages, *headers])
  usual = [key for key, made in sections.all_options() if not made.advanced]
  assert sorted(varied - set(usual)) == []
  unnamed = [
    key
    for key in set(usual) - varied
    if not re.search(rf'(config\.|--|`){re.escape(key)}\b', text)
  ]
  assert unnamed == []


def test_the_page_of_options_is_what_the_sections_say():
  """Else: python -m jaxagent.config.table > docs/config.md."""
  assert (ROOT / 'docs/config.md').read_text() == table.page() + '\n'


def test_one_record_serves_all_roles():
  roles = {
    name
    for name, section in sections.known().items()
    if issubclass(section, Endpoint)
  }
  assert roles == {
    'expert', 'editor', 'reader', 'instrumenter', 'writer', 'embeddings'
  }  # fmt: skip


def test_the_learner_has_the_options_of_the_config():
  config = stepwise_ppo.get_config('qwen2.5-7b')
  made = device.learner_config(config, 'gpu')
  for name in LearnerOptions.options():
    assert getattr(made, name) == config.rl[name], name
  assert made.steps == 40 and made.sft_lr == 2e-5
  tiny = device.learner_config(stepwise_ppo.get_config('tiny'), 'cpu')
  fresh = LearnerConfig()
  for name in LearnerOptions.options():
    assert getattr(tiny, name) == getattr(fresh, name), name


@pytest.mark.parametrize(
  'change, text',
  [
    (('rl', 'polcy_lr', 1.0), "config.rl has no 'polcy_lr'.*mean policy_lr"),
    (('', 'sead', 1), "config has no 'sead'; .*Did you mean seed"),
    (('', 'rlhf', {}), "config has no 'rlhf'"),
    (('rollout', 'top_p', 1.0), 'config.rollout.top_p=1.0 is retired: trunc'),
    (('rollout', 'top_k', 0), 'config.rollout.top_k=0 is retired: truncated'),
  ],
)
def test_a_key_that_a_config_file_adds_is_refused(change, text):
  section, key, value = change
  config = common.base().unlock()
  (config[section] if section else config)[key] = value
  with pytest.raises(UserError, match=text) as error:
    settings.validate(config)
  assert '\n' not in str(error.value)


@pytest.mark.parametrize('name', [name for name in sections.SECTIONS if name])
@pytest.mark.parametrize('value', [None, 5, 'x', ('x',)])
def test_a_section_that_a_config_file_sets_to_a_value_is_refused(name, value):
  config = common.base().unlock()
  *parents, last = name.split('.')
  node = checks.get(config, parents[0]) if parents else config
  del node[last]
  node[last] = value
  settings.prepare(config)  # comes before the check
  with pytest.raises(UserError, match=f'config.{name}=.*is a section') as error:
    settings.validate(config)
  assert '\n' not in str(error.value)
  assert 'Options' in table.text(config)


def test_what_a_config_file_leaves_out_is_named_with_its_default():
  config = common.base().unlock()
  config.rl = ConfigDict({'batch_size': 4})
  with pytest.raises(
    UserError, match='config.rl.group_size is missing; set it'
  ):
    settings.validate(config)


def test_a_path_with_a_nul_is_refused():
  config = common.base().unlock()
  config.tasks_dir = 'a\0b'
  with pytest.raises(UserError, match='tasks_dir=.*must be a text without NUL'):
    settings.validate(config)


def test_two_configs_are_refused():
  argv = [f'--config=configs/{name}.py' for name in ('stepwise_ppo', 'ideator')]
  with pytest.raises(ValueError, match='given 2 times .*stepwise.*ideator'):
    command_line.check_overrides([*argv, '--config.ideator.arms=()'])


@pytest.mark.parametrize('key', sections.RETIRED)
def test_a_retired_key_is_named_on_the_command_line(key):
  argv = ['--config=configs/stepwise_ppo.py', f'--config.{key}=1']
  with pytest.raises(ValueError, match=f'{key}=1 is retired: .*leave it out'):
    command_line.check_overrides(argv)


def test_a_section_from_outside_is_read_listed_and_refused(ideas):
  assert sections.read(ideas, 'ideas') == Ideas()
  settings.validate(ideas)
  ideas.ideas.extra = '{"seed": null}'
  assert settings.config_record(ideas)['ideas'] == {
    'kept': 10, 'drawn': 20, 'extra': {'seed': None}
  }  # fmt: skip
  assert 'ideas.drawn' in table.text(ideas).split('Advanced')[1]
  for values, text in (
    ({'kept': 0}, 'config.ideas.kept=0 must be a whole number of 1 or more'),
    ({'kept': 21}, 'config.ideas.kept=21 is more than config.ideas.drawn=20'),
    ({'extra': 'x'}, 'config.ideas.extra=.x.: neither JSON'),
    ({'keptt': 1}, "config.ideas has no 'keptt'.*Did you mean kept"),
  ):
    config = ideas.copy_and_resolve_references()
    config.ideas.update(values)
    with pytest.raises(UserError, match=text):
      settings.validate(config)
  del ideas.ideas.kept
  with pytest.raises(UserError, match='config.ideas.kept is missing'):
    settings.validate(ideas)


def test_a_section_that_cannot_be_added_is_refused():
  @dataclasses.dataclass(frozen=True)
  class Bad(Section):
    kept: int = option(0, help='Refused by its own bound.')

  class Plain(Ideas):
    more: int = option(1, help='Lost, for there is no decorator.')

  @dataclasses.dataclass(frozen=True)
  class Typo(Ideas):
    relations = (
      relation('keptt', holds=lambda kept: kept < 3, say='never said'),
    )

  for name, section, error, text in (
    ('ideas', Typo, ValueError, "a relation reads 'keptt', which is no option"),
    ('items', Ideas, ValueError, 'no word of Python or method of a dictionary'),
    ('class', Ideas, ValueError, 'no word of Python or method of a dictionary'),
    ('ideas', Plain, TypeError, 'must be a frozen dataclass that derives'),
    ('rl', Ideas, ValueError, "section 'rl' is taken"),
    ('seed', Ideas, ValueError, "section 'seed' is taken"),
    ('a.b', Ideas, ValueError, "section 'a.b' must be a word"),
    ('ideas', dict, TypeError, 'from jaxagent.options.Section'),
    ('ideas', Bad, ValueError, 'kept=0 must be a whole number'),
  ):
    with pytest.raises(error, match=text):
      sections.add(name, section)
  assert 'ideas' not in sections._added


def test_a_config_without_an_added_section_is_as_before(ideas):
  config = common.base()
  config.tasks_dir = str(ROOT / 'tasks')
  settings.validate(config)
  assert 'ideas' not in settings.config_record(config)
  assert 'ideas.kept' not in table.text(config)


_OUTSIDE = """
import dataclasses
from configs import common, stepwise_ppo
from jaxagent.options import Section, option

@dataclasses.dataclass(frozen=True)
class Ideas(Section):
  kept: int = option(10, help='Ideas kept of those proposed.')
  extra: dict = option({}, help='{}: nothing.')

def get_config(arg=''):
  config = stepwise_ppo.get_config(arg)
  common.add_section(config, 'ideas', Ideas)
  return config
"""


def _main(*arguments: str) -> subprocess.CompletedProcess:
  return subprocess.run(
    [sys.executable, '-m', 'jaxagent.main', *arguments],
    cwd=ROOT,
    env=environment(),
    capture_output=True,
    text=True,
    timeout=120,
  )


@pytest.mark.parametrize(
  'given, said',
  [
    ('--config.ideas.kept=0', 'error: config.ideas.kept=0 must be a whole'),
    ('--config.ideas.kept=x', "'x' must be a whole number"),
    (
      '--config.ideas.keep=3',
      "config.ideas has no 'keep'; it has: extra, kept.",
    ),
    ('--config.ideas.extra=[1]', 'config.ideas.extra=[1]: no dictionary'),
    ('--config.ideas.extra={"seed": null}', ''),
  ],
)
def test_a_config_file_outside_the_checkout_has_its_own_section(
  tmp_path, given, said
):
  file = tmp_path / 'mine.py'
  file.write_text(_OUTSIDE)
  done = _main(f'--config={file}', given, '--dry_run')
  assert done.returncode == (2 if said else 0), done.stderr
  assert said in done.stderr and done.stderr.count('\n') == bool(said)


def test_the_table_has_values_and_advanced_options_in_a_second_part():
  done = _main(
    '--config=configs/ml_agent.py:evaluate', '--config.seed=7', '--config_help'
  )
  assert done.returncode == 0, done.stderr
  usual, advanced = done.stdout.split('Advanced options')
  assert re.search(r'^seed +0 +7 +whole number >= 0', usual, re.M)
  assert re.search(r'^env.dialect +.jaxagent. +.mlagentbench. ', usual, re.M)
  assert re.search(r'^rl.kl_kind +.k3. +k1 \| k2 ', advanced, re.M)
  rows = [line for line in done.stdout.splitlines() if ' ' in line]
  assert len(rows) >= len(list(sections.all_options()))
  assert _main('--config_help').returncode == 0


def test_the_table_needs_no_jax():
  program = (
    'import sys\n'
    'from configs import ml_agent\n'
    'from jaxagent.config import command_line, table\n'
    'print(table.text(ml_agent.get_config()))\n'
    'sys.exit("jax" in sys.modules)\n'
  )
  done = subprocess.run([sys.executable, '-c', program], cwd=ROOT, timeout=120)
  assert done.returncode == 0


if __name__ == '__main__':
  made = {name: _record(name) for name in [*RECORDS, *sys.argv[1:]]}
  GOLDEN.write_text(json.dumps(made, indent=1, sort_keys=True) + '\n')


def test_the_glossary_names_options_that_exist():
  page = (ROOT / 'docs/glossary.md').read_text()
  cells = [line.split('|')[1] for line in page.split('\n') if '|' in line]
  named = re.findall(r'`((?:rl|rollout)\.[a-z_]+)', ' '.join(cells))
  named = [key for key in named if not key.startswith('rollout.engine')]
  known = {key for key, _ in sections.all_options()}
  assert len(named) > 25 and set(named) <= known, set(named) - known
