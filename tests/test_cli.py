"""The command `jaxagent`: its verbs, its short form of the flags, its help."""

import ast
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
from absl import app, flags

from jaxagent import cli
from jaxagent.config.base import base

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / 'jaxagent'
CONFIG = 'configs/stepwise_ppo.py'
# Programs that another one starts, or that write a page of the documentation.
NO_VERB = {'__main__', 'cli', 'compiled'}


def _text(module: str) -> str:
  file = PACKAGE / f'{module}.py'
  return (
    file if file.is_file() else PACKAGE / module / '__main__.py'
  ).read_text()


def _programs() -> set[str]:
  """Names X of every `python -m jaxagent.X`."""
  guard = "__name__ == '__main__'"
  found = {p.stem for p in PACKAGE.glob('*.py') if guard in p.read_text()}
  return found | {p.parent.name for p in PACKAGE.glob('*/__main__.py')}


def _run(
  *argv: str, cwd: pathlib.Path = ROOT, flags: tuple[str, ...] = ()
) -> subprocess.CompletedProcess:
  return subprocess.run(
    [sys.executable, *flags, '-m', *argv],
    cwd=cwd,
    capture_output=True,
    text=True,
    timeout=120,
    env=os.environ | {'PYTHONPATH': str(ROOT), 'COLUMNS': '80'},
  )


def test_every_program_of_the_package_has_a_verb():
  modules = {module for module, *_ in cli.VERBS.values()}
  assert modules == _programs() - NO_VERB


def test_the_help_is_one_screen_and_names_every_verb(capsys):
  assert cli.main(['--help']) == 0
  lines = capsys.readouterr().out.splitlines()
  assert len(lines) <= 24 and max(map(len, lines)) <= 80
  assert [line.split()[0] for line in lines[2 : 2 + len(cli.VERBS)]] == [
    *cli.VERBS
  ]


def test_the_help_of_train_is_one_screen_and_names_the_configs(capsys):
  assert cli.main(['train', '--help']) == 0
  text = capsys.readouterr().out
  lines = text.splitlines()
  assert len(lines) <= 24 and max(map(len, lines)) <= 80
  assert 'evaluate, ideator, ml_agent' in text and 'common' not in text


def test_help_imports_neither_jax_nor_numpy():
  done = subprocess.run(
    [
      sys.executable,
      '-c',
      'import sys\nfrom jaxagent import cli\ncli.main(["--help"])\n'
      'print({"jax", "numpy", "absl"} & {*sys.modules})',
    ],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=60,
  )
  assert done.stdout.splitlines()[-1] == 'set()', done.stderr


def test_no_verb_is_refused_with_the_help(capsys):
  assert cli.main([]) == 2
  assert capsys.readouterr().err == cli.help_text()


def test_an_unknown_verb_ends_with_2_names_the_choices_and_the_nearest(capsys):
  assert cli.main(['trian', CONFIG]) == 2
  said = capsys.readouterr().err
  assert said.startswith("error: 'trian' is no verb") and said.count('\n') == 1
  assert 'conversations' in said and 'the nearest is train.' in said


@pytest.mark.parametrize(
  'given, made',
  [
    (['--rl.updates', '8'], ['--config.rl.updates=8']),
    (['--rl.updates=8'], ['--config.rl.updates=8']),
    (['-rl.updates', '8'], ['--config.rl.updates=8']),
    (['--config.rl.updates', '8'], ['--config.rl.updates=8']),
    (
      ['--seed', '3', '--stage', 'sft'],
      ['--config.seed=3', '--config.stage=sft'],
    ),
    (['--rl.keep_best'], ['--config.rl.keep_best']),
    (['--rl.keep_best', 'False'], ['--config.rl.keep_best=False']),
    (
      ['--rl.keep_best', '--seed', '3'],
      ['--config.rl.keep_best', '--config.seed=3'],
    ),
    (['--reward.alpha', '-1.5'], ['--config.reward.alpha=-1.5']),
    (
      ['--tasks.heldin', "('digits', 'wine')"],
      ["--config.tasks.heldin=('digits', 'wine')"],
    ),
    (['--rollout.stop=a=b'], ['--config.rollout.stop=a=b']),
    (['--rollout.stop='], ['--config.rollout.stop=']),
    (['--work_dir', 'a b', '--dry_run'], ['--work_dir=a b', '--dry_run']),
    (['--nodry_run', '--verbosity', '-1'], ['--nodry_run', '--verbosity=-1']),
    (['--rl.updates', '8', 'stray'], ['--config.rl.updates=8', 'stray']),
  ],
)
def test_options_of_train_become_flags_of_main(given, made):
  assert cli.command(['train', CONFIG, *given]) == [
    *('-m', 'jaxagent.main', f'--config={CONFIG}', *made),
  ]


def test_flags_in_their_long_form_stay_as_they_are():
  long = [f'--config={CONFIG}', '--config.rl.updates=8', '--check']
  assert cli.command(['train', *long])[2:] == long


def test_options_of_plan_are_its_own_or_the_experiments():
  made = cli.command(
    ['plan', f'{CONFIG}:qwen2.5-7b', '--target', 'a100:1x1x8', '--json', 'out']
    + ['--rl.batch_size', '64']
  )
  assert made == [
    *('-m', 'jaxagent.plan', f'--config={CONFIG}:qwen2.5-7b'),
    *('--target=a100:1x1x8', '--json=out', '--config.rl.batch_size=64'),
  ]


def test_arguments_of_the_other_verbs_are_handed_on_as_they_are():
  rest = ['WORK', '--update', '37', '--json']
  assert cli.command(['why', *rest]) == ['-m', 'jaxagent.why', *rest]


def test_own_flags_are_those_that_the_programs_define():
  defined = [
    ast.literal_eval(call.args[0])
    for call in ast.walk(ast.parse(_text('main')))
    if isinstance(call, ast.Call)
    and ast.unparse(call.func).split('.')[-1].startswith('DEFINE_')
  ]
  assert {*cli.OWN['train']} == {*defined}
  named = re.findall(r"add_argument\(\s*'--(\w+)'", _text('plan'))
  assert {*cli.OWN['plan']} == {*named, 'help', 'h'}


def test_no_option_of_an_experiment_has_the_name_of_a_flag():
  app.define_help_flags()
  own = {'work_dir', 'dry_run'}  # flags of main that set the option
  assert not {*flags.FLAGS} & {*base()} - own


def test_the_long_form_that_is_printed_is_what_runs(monkeypatch, capsys):
  ran = []
  monkeypatch.setattr(os, 'execv', lambda program, argv: ran.extend(argv))
  cli.main(['train', CONFIG, '--work_dir', "a b'c", '--rollout.stop', "('#',)"])
  said = capsys.readouterr().err.removeprefix('running: ')
  assert shlex.split(said)[1:] == ran[2:]
  assert ran[4:] == [
    *(f'--config={CONFIG}', "--work_dir=a b'c", "--config.rollout.stop=('#',)"),
  ]


def test_a_config_is_found_by_name_in_the_checkout_from_anywhere(
  tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  assert cli.find_config('stepwise_ppo:tiny') == str(ROOT / f'{CONFIG}:tiny')
  (tmp_path / 'configs').mkdir()
  (tmp_path / 'configs' / 'mine.py').write_text('def get_config(arg=""): ...')
  (tmp_path / 'configs' / 'folder.py').mkdir()
  assert cli.find_config('mine') == 'configs/mine.py'
  assert cli.find_config('sft') == str(ROOT / 'configs/sft.py')


def test_an_unknown_config_is_refused_with_the_choices_and_the_nearest():
  with pytest.raises(
    cli.Refused, match='choose from .*nearest is stepwise_ppo'
  ):
    cli.command(['train', 'stepwise_po'])
  with pytest.raises(
    cli.Refused, match='a config before its options: evaluate'
  ):
    cli.command(['train', '--rl.updates', '8'])


@pytest.mark.parametrize('flag', ['--work_dir', '--config'])
@pytest.mark.parametrize('rest', [(), ('--rl.updates=8',)])
def test_a_flag_without_its_value_takes_no_other_flag_for_it(flag, rest):
  with pytest.raises(cli.Refused, match=f'^{flag} needs a value'):
    cli.command(['train', CONFIG, flag, *rest])


def test_a_config_is_found_wherever_it_is_named(monkeypatch):
  monkeypatch.chdir(ROOT)
  for words in (
    ['configs/stepwise_ppo'],
    ['--config', 'stepwise_ppo'],
  ):
    assert cli.command(['train', *words])[2:] == [f'--config={CONFIG}']


def test_what_lies_beside_a_script_is_not_imported(tmp_path):
  (tmp_path / 'json.py').write_text('raise SystemExit("read")')
  done = _run('jaxagent.cli', 'metrics', cwd=tmp_path, flags=('-P',))
  assert done.returncode == 0 and 'actor/' in done.stdout


@pytest.mark.parametrize('stdout', ['>&-', '>/dev/full'])
@pytest.mark.parametrize('verb, status', [('--help', {0, 1}), ('tasks', {2})])
def test_a_closed_or_full_output_ends_without_a_traceback(stdout, verb, status):
  done = subprocess.run(
    [
      'bash',
      '-c',
      f'exec "$0" -m jaxagent.cli {verb} {stdout}',
      sys.executable,
    ],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=60,
  )
  assert done.returncode in status, done.stderr
  assert 'Traceback' not in done.stderr


def test_a_reader_that_has_enough_sees_no_traceback(tmp_path):
  line = {
    'format': 1, 'prompt_id': 'x' * 99, 'restart': 0, 'task': 'wine', 'fate': 'trained',
    'update': 0, 'version': 0, 'outcome': 'ok', 'reward': 0.5, 'reason': None,
    'message': '', 'turns': [], 'attempts': [], 'seconds': {},
  }  # fmt: skip
  (tmp_path / 'rl').mkdir()
  log = tmp_path / 'rl' / 'rollouts.jsonl'
  log.write_text(f'{json.dumps(line)}\n' * 2000)
  for verb in (
    f'train {CONFIG} --config_help',
    f'why {tmp_path} --update 0',
  ):
    done = subprocess.run(
      [
        'bash',
        '-c',
        f'"$0" -m jaxagent.cli {verb} | head -n 1',
        sys.executable,
      ],
      cwd=ROOT,
      capture_output=True,
      text=True,
      timeout=120,
    )
    assert done.stdout.count('\n') == 1
    assert 'BrokenPipe' not in done.stderr, done.stderr


def test_a_name_is_refused_where_there_are_no_configs(monkeypatch):
  monkeypatch.setattr(cli, '_config_folders', lambda: ['no/such/folder'])
  with pytest.raises(cli.Refused, match='no config here.*recipes new NAME'):
    cli.command(['train', 'stepwise_ppo'])
  assert (
    cli.command(['train', 'my/own.py:small'])[2] == '--config=my/own.py:small'
  )


def test_a_verb_ends_as_its_program_does(tmp_path):
  short = _run('jaxagent.cli', 'why', str(tmp_path), cwd=tmp_path)
  long = _run('jaxagent.why', str(tmp_path), cwd=tmp_path)
  assert short.returncode == long.returncode == 2
  assert short.stderr == long.stderr and str(tmp_path) in short.stderr


def test_the_command_is_the_package_itself(tmp_path):
  done = [
    _run(module, 'why', str(tmp_path), cwd=tmp_path)
    for module in ('jaxagent', 'jaxagent.cli')
  ]
  assert done[0].returncode == done[1].returncode == 2
  assert done[0].stderr == done[1].stderr != ''


def test_train_in_the_short_form_is_refused_as_in_the_long_one():
  done = _run('jaxagent.cli', 'train', CONFIG, '--rl.update', '8')
  assert done.returncode == 2
  first, second = done.stderr.splitlines()
  assert first == (
    f'running: python -m jaxagent.main --config={CONFIG} --config.rl.update=8'
  )
  assert 'Did you mean updates' in second
