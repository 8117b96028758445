"""benchmarks.budget measures each stage of two commits, and only finished runs."""

import json
import subprocess
import sys

import pytest

from benchmarks import budget

# A run that burns CPU in one stage, half of it in a child, and sleeps in another.
_MAIN = """
import json, pathlib, subprocess, sys, time
given = dict(word.split('=', 1) for word in sys.argv[1:])
work = pathlib.Path(given['--work_dir'])
assert given['--config.seed'] == '3', given
BURN = {burn}
if pathlib.Path(__file__).with_name('fails').exists():
  sys.exit(1)

def burn(seconds):
  while time.process_time() < seconds:
    pass

def write(name, text=''):
  path = work / name
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(text)

write('eval/starts.json')
time.sleep(0.6)
write('tokenizer/tokenizer.json')
child = 'import time\\nwhile time.process_time() < %f: pass' % BURN
subprocess.run([sys.executable, '-c', child])
burn(BURN)
write('eval/sft.updates')
time.sleep(0.6)
write('eval/sft.json')
write('rl/journal/0')
times = [9, 9, 1, BURN]
records = [{{'step': n, 'timing_s/step': t}} for n, t in enumerate(times)]
write('logs/metrics.jsonl', ''.join(json.dumps(r) + '\\n' for r in records))
write('rl/ledger.json')
write('summary.json')
"""
_CONFIG = """
def get_config():
  return {'seed': 0, 'sft': {NAME: 1}}
"""


def _git(root, *words):
  subprocess.run(
    ['git', '-C', root, '-c', 'user.name=t', '-c', 'user.email=t@t', *words],
    check=True,
    capture_output=True,
  )


def _commit(root, burn, name="'epochs'"):
  (root / 'jaxagent').mkdir(exist_ok=True)
  (root / 'configs').mkdir(exist_ok=True)
  (root / 'jaxagent' / '__init__.py').write_text('')
  (root / 'jaxagent' / 'main.py').write_text(_MAIN.format(burn=burn))
  (root / budget.CONFIG).write_text(_CONFIG.replace('NAME', name))
  _git(root, 'add', '.')
  _git(root, 'commit', '-q', '-m', 'one')


@pytest.fixture(name='repository')
def _repository(tmp_path):
  root = tmp_path / 'repository'
  root.mkdir()
  _git(root, 'init', '-q')
  _commit(root, 0.6, "'passes'")
  _commit(root, 1.8)
  return root


def _run(root, base, pairs=1, cold=True, **changed):
  return budget.run(
    root,
    {'before': 'HEAD~1', 'after': 'HEAD', **changed},
    base,
    {'seed': 3, 'sft.epochs': 2},
    pairs=pairs,
    cold=cold,
    renamed={'sft.passes': 'sft.epochs'},
  )


@pytest.mark.slow
@pytest.mark.alone
def test_cpu_seconds_are_those_of_the_stage_and_of_each_commit(
  repository, tmp_path
):
  result = _run(repository, tmp_path / 'base')
  stages = result['stages']
  sft = stages['sft']
  assert sft['cpu_s']['before'] == pytest.approx(1.2, abs=0.4)
  assert sft['cpu_s']['after'] == pytest.approx(3.6, abs=0.6)
  assert sft['executions_cpu_s']['after'] == pytest.approx(1.8, abs=0.4)
  assert 2 < sft['cpu_s']['ratio'] < 5
  # The other stages sleep.
  assert stages['collect']['cpu_s']['after'] < 0.5
  assert stages['collect']['wall_s']['after'] > 0.3
  assert stages['whole']['cpu_s']['after'] == pytest.approx(3.7, abs=0.7)
  assert sft['peak_mb']['after'] > 3
  # Medians of the updates after the first two: of 1 and what was burnt.
  assert result['update']['timing_s/step']['before'] == pytest.approx(0.8)
  assert result['update']['timing_s/step']['after'] == pytest.approx(1.4)
  text = '\n'.join(budget.lines(result))
  assert 'sft executions_cpu_s' in text and 'timing_s/step' in text
  listed = subprocess.run(
    ['git', '-C', repository, 'worktree', 'list'], capture_output=True
  )
  assert listed.stdout.count(b'\n') == 1  # nothing is left in the repository


def test_finished_runs_are_reused_and_others_are_not(
  repository, tmp_path, monkeypatch
):
  ran = []

  def measure(checkout, given, work, env):
    ran.append(
      (work.name.partition('-')[0], 'JAX_COMPILATION_CACHE_DIR' in env)
    )
    if len(ran) == 3:
      raise KeyboardInterrupt
    return {'stages': {'sft': {'cpu_s': 2.0}}, 'update': {}}

  monkeypatch.setattr(budget, 'measure', measure)
  with pytest.raises(KeyboardInterrupt):
    _run(repository, tmp_path / 'base', pairs=2)
  assert ran == [('before', False), ('after', False), ('after', False)]
  result = _run(repository, tmp_path / 'base', pairs=2)
  assert [side for side, _ in ran[3:]] == ['after', 'before']
  assert result['stages']['sft']['cpu_s']['ratio'] == 1.0
  ran.append(None)
  _run(repository, tmp_path / 'base', pairs=1, cold=False)  # of other programs
  assert ran[6:] == [
    ('fill', True),
    ('fill', True),
    *[('before', True)],
    ('after', True),
  ]


def test_ratios_are_of_pairs_and_a_figure_that_one_side_lacks_is_left_out():
  def side(cpu, **update):
    return {'stages': {'rl': {'cpu_s': cpu}}, 'update': update}

  name = 'timing_s/step'
  found = budget.compared(
    [
      {'before': side(4.0, **{name: 2.0}), 'after': side(1.0)},
      {'before': side(10.0, **{name: 2.0}), 'after': side(5.0, **{name: 1.0})},
      {'before': side(2.0, **{name: 2.0}), 'after': side(2.0, **{name: 1.0})},
    ]
  )
  row = found['stages']['rl']['cpu_s']
  assert row == {
    'before': 4.0, 'after': 2.0, 'ratio': 0.5, 'least': 0.25, 'greatest': 1.0
  }  # fmt: skip
  assert found['update'] == {} and found['stages']['sft'] == {}
  # Of next to nothing there is no ratio.
  small = budget.compared([{'before': side(0.01), 'after': side(0.03)}])
  assert small['stages']['rl']['cpu_s'] == {'before': 0.01, 'after': 0.03}


def test_what_fails_is_named(repository, tmp_path, capsys):
  (repository / 'jaxagent' / 'fails').write_text('')
  _git(repository, 'add', '.')
  _git(repository, 'commit', '-q', '-m', 'fails')
  with pytest.raises(RuntimeError, match='ended with 1: .*after.*log'):
    _run(repository, tmp_path / 'base')
  with pytest.raises(ValueError, match="'nothing' is no commit"):
    _run(repository, tmp_path / 'base', before='nothing')
  assert budget.main(['--against', 'no-such-commit']) == 1
  assert 'no commit' in capsys.readouterr().err


def test_the_short_form_names_options_that_there_are():
  done = subprocess.run(
    [sys.executable, '-m', 'benchmarks.budget', '--help'],
    cwd=budget.ROOT,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0 and '--whole' in done.stdout
  checkout = budget.same_digits.Checkout(budget.ROOT)
  given = budget.same_digits.options(
    budget.SHORT, checkout.keys(budget.CONFIG), {}
  )
  assert len(given) == len(json.loads(json.dumps(budget.SHORT)))
