"""What was not evaluated is left out of summary and report."""

import json
import types

import pytest

from jaxagent.analysis import summary
from jaxagent.data.records import state_from_json
from jaxagent.errors import UserError
from jaxagent.recipes import results, stages, starts
from jaxagent.recipes.ml_agent import steps
from jaxagent.training import device
from tests import made
from tests.config.test_rules import _config
from tests.runtime.test_kept import RECORD, STATE


def _host(tmp_path, **changes):
  from jaxagent.envs.tasks import load_task

  config = _config({'tasks.heldin': ('wine',), **changes})
  return types.SimpleNamespace(
    config=config,
    work=tmp_path,
    heldin=('wine',),
    heldout=(),
    wall_s={},
    stand_ins=[],
    standin_data=[],
    pool=types.SimpleNamespace(tier='T2'),
    spec=lambda name: load_task(name, config.tasks_dir),
  )


def _starts():
  return {'wine': starts.Start(state_from_json(STATE), 0.66)}


def _keep(tmp_path, label):
  rows = [{**RECORD, 'index': i, 'score': 0.3} for i in range(16)]
  starts.write_json(tmp_path / 'eval' / f'{label}.json', rows)


@pytest.mark.parametrize(
  'policies, kept',
  [
    (('rl',), {'starter', 'rl'}),
    (('starter', 'sft'), {'starter', 'sft'}),
    ((), {'starter'}),
    (('starter', 'sft', 'rl'), {'starter', 'sft', 'rl'}),
  ],
)
def test_summary_holds_what_was_evaluated(tmp_path, policies, kept, capsys):
  for label in policies:
    if label != 'starter':
      _keep(tmp_path, label)
  host = _host(tmp_path, **{'eval.policies': policies})
  stages.finish(host, _starts())
  found = summary.load(tmp_path / 'summary.json')
  assert {p for p in summary.POLICIES if p in found} == kept
  assert (tmp_path / 'report.html').exists()
  said = capsys.readouterr().out
  assert all(f'heldin   {policy}' in said for policy in kept)
  for label in kept - {'starter'}:  # 16 trajectories of one task
    assert found[label]['heldin']['relative_gain']['needs'] == 32
  few = 'too few trajectories of a task' in said
  assert few == ('], needs 32\n' in said) == bool(kept - {'starter'})


def test_summary_and_report_name_published_tasks_with_data_made_by_code(
  tmp_path,
):
  host = _host(tmp_path, **{'eval.policies': ('starter',)})
  host.standin_data = ['spaceship-titanic']
  stages.finish(host, _starts())
  found = summary.load(tmp_path / 'summary.json')
  assert found['extra']['standin_data'] == ['spaceship-titanic']
  page = (tmp_path / 'report.html').read_text()
  assert 'Data made by code' in page and 'spaceship-titanic' in page


def test_a_missing_evaluation_ends_the_run_with_a_user_error(tmp_path):
  host = _host(tmp_path, **{'eval.policies': ('rl',)})
  with pytest.raises(UserError, match=r'rl\.json is missing.*same command'):
    stages.finish(host, _starts())


def test_a_trace_of_another_version_is_named_and_stays(tmp_path):
  path = tmp_path / 'update_000000.jsonl'
  path.write_text(json.dumps({**made.turn(reward=0.5).to_json(), 'format': 7}))
  with pytest.raises(UserError, match=r'update_000000\.jsonl:1: .* format 7'):
    results.read_traces(tmp_path)
  assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_damaged_trace_is_set_aside(tmp_path, capsys):
  row = made.turn(update=3, reward=0.5)
  good = json.dumps(row.to_json()) + '\n'
  path = tmp_path / 'update_000000.jsonl'
  path.write_text(good + '{"task": "wi\n' + '{"task": "wine"}\n' + good)
  (tmp_path / 'update_000001.jsonl').write_text(good)
  assert results.read_traces(tmp_path) == [row] * 3
  said = capsys.readouterr().out
  assert 'update_000000.jsonl is damaged (line 2' in said
  assert path.with_name('update_000000.jsonl.damaged').exists()
  assert results.read_traces(tmp_path) == [row] * 3
  assert capsys.readouterr().out == ''


def test_prompts_are_measured_before_sft(tmp_path):
  """Exactly, once there is a tokenizer; a token a character here."""
  host = _host(tmp_path, **{'rollout.max_prompt_tokens': 100})
  tokenizer = types.SimpleNamespace(encode_prompt=list)
  with pytest.raises(UserError, match='max_prompt_tokens=100 is below') as e:
    steps.check_prompts(host, tokenizer, _starts())
  needed = int(str(e.value).split('shortest prompt (')[1].split()[0])
  host.config.rollout.max_prompt_tokens = needed
  steps.check_prompts(host, tokenizer, _starts())


def test_evaluation_of_an_untrained_run_is_refused(tmp_path):
  with pytest.raises(UserError, match='holds no RL checkpoint; train') as error:
    device.check_trained(tmp_path)
  assert '.py' not in str(error.value)  # of whatever recipe
