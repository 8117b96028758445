"""The source's own number of the whole hidden test, and medals, beside a run's scores."""

import dataclasses
import json
import types

import pytest

from jaxagent import audit
from jaxagent.analysis import summary
from jaxagent.data.records import state_from_json
from jaxagent.envs import tasks as lib
from jaxagent.envs.execution import Run
from jaxagent.envs.grading import Grader
from jaxagent.envs.specs import leaderboards
from jaxagent.envs.specs.task_data import DataSource
from jaxagent.graders import report
from jaxagent.recipes import results, starts, whole_test
from jaxagent.recipes.ideator import figures
from jaxagent.recipes.ideator.recipe import Ideator
from jaxagent.records import Evaluated, TakenStep
from jaxagent.types import Execution, Outcome
from tests import made
from tests.config.test_rules import _config
from tests.runtime.test_kept import STATE
from tests.tasks import published

TASK = 'pizza'
BOARD = [0.99, 0.97, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.2]


def _checkout(home, text='score\n' + '\n'.join(map(str, BOARD))):
  """Writes a made-up checkout of mle-bench with one leaderboard."""
  path = home / 'mlebench/competitions/random-acts-of-pizza/leaderboard.csv'
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(text)
  return str(home)


@pytest.fixture(scope='module')
def task(tmp_path_factory):
  """A task whose data was prepared by mle-bench, made up."""
  home = tmp_path_factory.mktemp('published')
  published.write(home / 'tasks', TASK)
  for half in ('public', 'private'):
    folder = home / 'data/random-acts-of-pizza/prepared' / half
    folder.mkdir(parents=True)
    (folder / 'made_up.csv').write_text('a\n1\n')
  source = DataSource('mlebench', home / 'data')
  spec = lib.load_task(TASK, home / 'tasks')
  return lib.prepare_task(spec, home / 'prepared', source)


def _context(tmp_path, task, **changes):
  """A run that trains on the task, by default without a checkout of mle-bench."""
  spec = dataclasses.replace(
    task.spec, m_init=0.5, m_best=1.0, m_best_private=1.0
  )
  return types.SimpleNamespace(
    config=_config({'tasks.heldin': ('wine',), 'eval.k': 1, **changes}),
    work=tmp_path,
    heldin=(TASK,),
    heldout=(),
    wall_s={},
    stand_ins=[],
    standin_data=[],
    pool=types.SimpleNamespace(tier='T2'),
    spec=lambda name: spec,
  )


def _records(scores):
  step = TakenStep.of(made.step(score_after=0.5))
  return [
    Evaluated(
      task=TASK, index=i, split='heldin', score=0.6, whole=score,
      steps=(dataclasses.replace(step, private=0.6, whole=score),),
    )
    for i, score in enumerate(scores)
  ]  # fmt: skip


STARTS = {TASK: starts.Start(state_from_json(STATE), 0.55, 0.51)}


def _written(tmp_path, task, scores, **changes):
  """Writes evaluation, summary and report; returns what the summary says."""
  context = _context(tmp_path, task, **changes)
  found = _records(scores)
  starts.write_json(
    tmp_path / 'eval/starts.json', {TASK: {'private': 0.55, 'whole': 0.51}}
  )
  rows = list(audit.seal([r.to_json() for r in found], 'rl'))
  starts.write_json(tmp_path / 'eval/rl.json', rows)
  results.write(context, STARTS, {'rl': found}, [])
  return summary.load(tmp_path / 'summary.json')['extra']['whole_test'][TASK]


def test_medals_are_those_of_the_published_rules(tmp_path, task, capsys):
  """Of ten teams gold is the first, silver two, bronze four."""
  repo = _checkout(tmp_path / 'repo')
  scores = [0.99, 0.98, 0.97, 0.95, 0.9, 0.825, 0.82]
  found = _written(tmp_path, task, scores, **{'tasks.mlebench_repo': repo})
  own = found['policies']['rl']
  won = {
    name: own[name] for name in ('gold', 'silver', 'bronze', 'above_median')
  }
  assert won == {'gold': 1, 'silver': 2, 'bronze': 2, 'above_median': 5}
  assert (own['n'], own['best']) == (7, 0.99)
  assert found['board']['teams'] == 10 and found['board']['median'] == 0.825
  assert found['policies']['starter']['best'] == 0.51
  assert found['policies']['starter']['above_median'] == 0
  assert found['trained_on'] and not found['standin']
  said = capsys.readouterr().out
  assert 'pizza (trained on): rl: mean 0.91929, best 0.99 of 7; 1 gold' in said
  page = (tmp_path / 'report.html').read_text()
  assert 'Whole hidden test' in page and 'trained on' in page


@pytest.mark.parametrize(
  ('text', 'why'),
  [
    ('version https://git-lfs.github.com/spec/v1\noid sha256:0\n', 'git lfs pull'),
    ('score\n0.2\n0.5\n0.9\n', 'runs from 0.2 to 0.9'),
    ('points\n1\n', 'no `score` column'),
    ('score\n0.5\n0.5\n', 'best and worst of'),
    ('score\ngood\n0.5\n', 'leaderboard.csv has a score that is no number'),
    ('0.9\n0.5\n', 'no `score` column'),
    ('score\n0.9\nnan\n', 'rows without a score'),
  ],
)  # fmt: skip
def test_a_board_that_cannot_be_used_gives_no_medal_but_a_reason(
  tmp_path, task, text, why
):
  repo = _checkout(tmp_path / 'repo', text)
  found = _written(tmp_path, task, [0.99], **{'tasks.mlebench_repo': repo})
  assert found['board'] is None and why in found['note']
  assert found['policies']['rl'] == {'n': 1, 'mean': 0.99, 'best': 0.99}


def test_entries_without_a_score_count_as_teams_and_are_told(tmp_path, task):
  board = 'score\n' + '\n'.join(map(str, [*BOARD[:5], *[-9999] * 5]))
  found = leaderboards.board_of(task.spec, _checkout(tmp_path, board))
  assert found.thresholds.teams == 10 and found.thresholds.gold == 0.99
  assert '5 of 10 scores' in found.note and '-9999' in found.note


def test_without_a_checkout_the_score_stands_alone(tmp_path, task):
  assert 'mlebench_repo' in leaderboards.board_of(task.spec, '').note
  found = leaderboards.board_of(task.spec, str(tmp_path))
  assert found.thresholds is None and 'is not there' in found.note


def test_a_stand_in_says_so_and_earns_no_medal(tmp_path, task):
  standin = dataclasses.replace(
    task, spec=dataclasses.replace(task.spec, variant='standin')
  )
  repo = _checkout(tmp_path / 'repo')
  found = _written(tmp_path, standin, [1.0], **{'tasks.mlebench_repo': repo})
  assert found['standin'] and found['board'] is None
  assert 'stand-in' in found['note'] and 'gold' not in found['policies']['rl']
  assert 'stand-in' in (tmp_path / 'report.html').read_text()


def test_a_task_that_is_only_evaluated_on_is_not_marked(tmp_path, task):
  context = _context(tmp_path, task)
  context.heldin, context.heldout = (), (TASK,)
  found = whole_test.figures(context, STARTS, {'rl': _records([0.9])})
  assert found[TASK]['trained_on'] is False
  assert not any('trained on' in line for line in whole_test.lines(found))


def test_the_audit_derives_means_and_medals_again(tmp_path, task):
  repo = _checkout(tmp_path / 'repo')
  _written(tmp_path, task, [0.99, 0.9], **{'tasks.mlebench_repo': repo})
  whole = lambda: [  # noqa: E731
    d['problem']
    for d in audit.audit(tmp_path)['differences']
    if 'whole test' in d['problem']
  ]
  assert whole() == []
  path = tmp_path / 'summary.json'
  good = path.read_text()
  for policy, name, value in (
    ('rl', 'gold', 2),
    ('rl', 'mean', 0.99),
    ('starter', 'best', 0.6),
  ):
    changed = json.loads(good)
    figures = changed['extra']['whole_test'][TASK]['policies'][policy]
    figures[name] = value
    path.write_text(json.dumps(changed))
    (problem,) = whole()
    assert f'{TASK}, {policy}: {name} given {value!r}' in problem
  for broken in ([], {TASK: 3}, {TASK: {'policies': {'rl': {'n': 'x'}}}}):
    changed = json.loads(good)
    changed['extra']['whole_test'] = broken
    path.write_text(json.dumps(changed))
    assert all('not readable' in p for p in whole()) and len(whole()) == 1
  path.write_text(good)
  rows = [r.to_json() for r in _records([0.99, 0.9])]
  rows[1]['whole'] = 0.95
  sealed = list(audit.seal(rows, 'rl'))
  starts.write_json(tmp_path / 'eval/rl.json', sealed)
  assert any('score given 0.95, of its last step' in p for p in whole())


def test_an_execution_is_scored_on_both_halves_and_the_whole(tmp_path, task):
  lines = 't3_a,0.9\nt3_b,0.1\nt3_c,0.2\nt3_d,0.3\n'
  data = ('request_id,requester_received_pizza\n' + lines).encode()
  execution = Execution(
    'job', Outcome.OK, 'T2', collected={'submission.csv': data}
  )
  run = Run(Outcome.OK, 1.0, execution, '')
  context = _context(tmp_path, task)
  with Grader({TASK: task}) as context.grader:
    found = starts.both_scores(context, TASK, run)
  assert found == {'private': 0.0, 'whole': 0.75}


def test_thresholds_agree_with_the_report_of_mle_bench():
  for teams in (1, 9, 100, 249, 250, 1000):
    board = [1 - i / teams for i in range(teams)]
    made_of = report.Thresholds.of(board)
    for score in (*board[:3], 0.5, -1.0):
      ranked = report.rank(score, board)
      won = [m for m in report.MEDALS if ranked[f'{m}_medal']]
      assert won == ([made_of.medal(score)] if made_of.medal(score) else [])


def test_every_arm_of_an_ideator_is_there_and_audited(
  tmp_path, task, monkeypatch
):
  monkeypatch.setattr(figures, 'arms', lambda *_: {})
  recipe = Ideator(_config({'tasks.heldin': ('wine',)}))
  recipe.context, recipe.starts = _context(tmp_path, task), STARTS
  arms = {'none': _records([0.6]), 'rl': _records([0.9, None])}
  extra = recipe.extra(arms)
  policies = extra['whole_test'][TASK]['policies']
  assert {arm: row['mean'] for arm, row in policies.items()} == {
    'starter': 0.51, 'none': 0.6, 'rl': 0.9
  }  # fmt: skip
  _written(tmp_path, task, [0.9])
  for arm, records in arms.items():
    rows = list(audit.seal([r.to_json() for r in records], arm))
    starts.write_json(tmp_path / f'eval/{arm}.json', rows)
  path = tmp_path / 'summary.json'
  changed = json.loads(path.read_text())
  changed['extra'] |= extra
  found = []
  for mean in (0.6, 0.7):
    policies['none']['mean'] = mean
    path.write_text(json.dumps(changed))
    found += [d['problem'] for d in audit.audit(tmp_path)['differences']]
  assert len(found) == 1 and 'none: mean given 0.7, derived 0.6' in found[0]
