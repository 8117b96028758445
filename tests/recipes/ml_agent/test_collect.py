"""Ideas of the expert's model, and what becomes of trajectories that fail."""

# ruff: noqa: F811, F401 - a fixture of another file

from __future__ import annotations

import dataclasses
import errno
import math
import pathlib
import signal
import types as stubs

import pytest

from configs import common
from jaxagent.data.records import state_from_json
from jaxagent.envs.interfaces import NoText, TextModelError
from jaxagent.envs.snapshots import Snapshots
from jaxagent.envs.tasks import load_task
from jaxagent.errors import Interrupted, MachineryError, UserError
from jaxagent.recipes import starts
from jaxagent.recipes.ml_agent import collect
from jaxagent.runtime import context, text_models
from jaxagent.runtime.stop import StopFlag
from jaxagent.types import Outcome, State
from tests.llm.test_openai_client import answer, endpoint
from tests.recipes.ml_agent.test_evaluate import (
  LOOK,
  _idle_step,
  _starts,
  impatient,
)
from tests.runtime.test_kept import STATE

TASKS = pathlib.Path(__file__).parents[3] / 'tasks'


def _ideas(first: int, last: int):
  return answer(
    '[advice]\n' + '\n'.join(f'idea {i}' for i in range(first, last))
  )


def _host(work, endpoint):
  config = common.base()
  config.expert.kind, config.expert.model = 'openai', 'tiny'
  config.expert.base_url = endpoint.url
  config.collect.idea_pool = 12
  return stubs.SimpleNamespace(
    config=config,
    work=work,
    spec=lambda name: load_task(name, TASKS),
    expert=text_models.make_expert(config, work),
  )


def _chosen(host) -> list[str]:
  embed = text_models.make_embedder(host.config, host.work)
  return collect._ideas(host, state_from_json(STATE), embed)


def test_the_expert_is_asked_once_for_ideas(endpoint, tmp_path):
  endpoint.script = [_ideas(0, 8), _ideas(4, 14), _ideas(20, 40)]
  chosen = _chosen(_host(tmp_path, endpoint))
  assert len(chosen) == 10 and set(chosen) < {f'idea {i}' for i in range(14)}
  asked = [body['messages'][0]['content'] for _, _, body in endpoint.seen]
  assert len(asked) == 2
  assert load_task('wine', TASKS).research_problem in asked[0]
  assert _chosen(_host(tmp_path, endpoint)) == chosen
  assert len(endpoint.seen) == 2  # a resumed run does not ask


def test_ideas_are_compared_by_an_endpoints_vectors(endpoint, tmp_path):
  vectors = [[1.0, 0.0]] * 12
  vectors[7] = [0.0, 1.0]
  items = [{'index': i, 'embedding': v} for i, v in enumerate(vectors)]
  endpoint.script = [_ideas(0, 12), (200, {'data': items})]
  host = _host(tmp_path, endpoint)
  host.config.embeddings.update(kind='openai', model='e', base_url=endpoint.url)
  host.config.collect.ideas_kept = 1
  assert _chosen(host) == ['idea 7']
  path, _, body = endpoint.seen[1]
  assert path == '/v1/embeddings' and body['model'] == 'e'
  assert body['input'] == [f'idea {i}' for i in range(12)]
  endpoint.script = [(200, {'data': []})]
  host.config.embeddings.model = 'other'
  with pytest.raises(UserError, match='config.embeddings: other .*kind=tfidf'):
    _chosen(host)


def test_too_few_ideas_end_the_run_with_a_user_error(endpoint, tmp_path):
  endpoint.script = [_ideas(0, 5)]
  with pytest.raises(UserError, match='wine.*gave 5 ideas.*idea_pool=12'):
    _chosen(_host(tmp_path, endpoint))
  assert not (tmp_path / 'collect' / 'ideas').exists()


class _Collecting:
  """A run context whose expert only lists files; `faulty(job_id)` breaks a step."""

  exec_s = 0.0  # of each step

  def __init__(self, work, faulty, act=lambda *a: LOOK):
    self.config = common.base()
    self.config.collect.trajectories_per_task = 20
    self.config.collect.max_steps = 2
    self.config.collect.varied_start = 0.0
    self.work, self.heldin, self.stop = work, ('wine',), StopFlag()
    self.expert = stubs.SimpleNamespace(act=act, is_stand_in=True)
    self.env = stubs.SimpleNamespace(
      step=self._step, store=Snapshots(work / 'snapshots.sqlite')
    )
    self.stand_ins, self.faulty, self.asked = (), faulty, []
    self.left, self.fault = [], Outcome.INFRASTRUCTURE
    self.pool = stubs.SimpleNamespace(cancel=lambda job_id: None)

  def spec(self, name):
    return load_task(name, TASKS)

  def _step(self, state, text, *, split, job_id, most_s=math.inf):
    self.asked.append(job_id)
    self.left.append(most_s)
    result = _idle_step(state, text, split=split, job_id=job_id)
    result = dataclasses.replace(result, exec_s=self.exec_s)
    if not self.faulty(job_id):
      return result
    return dataclasses.replace(
      result, outcome=self.fault, message='no pool\n\u2028left'
    )


def _of(job: str) -> tuple[int, int]:
  """(index of the trajectory, number of the step) of a job."""
  index, call = job.split('-')[2].split('#1.')
  return int(index), int(call) // 2


def test_an_infrastructure_error_cuts_one_trajectory_short(tmp_path, capsys):
  made = _Collecting(tmp_path, lambda job: _of(job) == (7, 1))
  records = collect.run(made, _starts())
  assert len(records) == 20
  cut = [r for r in records if r.fault]
  assert [(r.index, len(r.steps)) for r in cut] == [(7, 1)]
  assert cut[0].fault == 'infrastructure 3 times: no pool left'
  said = capsys.readouterr().out
  assert '1 of 20 trajectories were cut short' in said and 'no pool' in said
  made.asked.clear()
  assert collect.run(made, _starts()) == records and not made.asked  # all kept


def test_the_progress_of_collecting_shows_the_mean_reward_of_steps(
  tmp_path, capsys, monkeypatch
):
  earned = iter([1.0, None, *[0.5] * 38])
  monkeypatch.setattr(
    'jaxagent.records.StepRecord.earned', lambda *args: next(earned)
  )
  collect.run(_Collecting(tmp_path, lambda job: False), _starts())
  assert capsys.readouterr().err.splitlines()[-1].endswith(' reward=0.5128')


def test_a_steps_state_is_kept_once_and_by_reference(tmp_path):
  made = _Collecting(tmp_path, lambda job: False)
  made.config.rollout.prompt_style = 'full'
  records = collect.run(made, _starts())
  keys = [step.state for r in records for step in r.steps]
  several = {r.ideas for r in records}
  assert len(keys) == 40 and len(set(keys)) == len(several) > 1
  state = made.env.store.get(keys[0])
  assert state.files == STATE['files'] and state.ideas == records[0].ideas
  made.env.store = Snapshots(':memory:')
  n = len(several)
  with pytest.raises(UserError, match=f'{n} of the {n} states .*made again'):
    collect.run(made, _starts())


def test_infrastructure_that_always_fails_ends_the_run(tmp_path):
  made = _Collecting(tmp_path, lambda job: _of(job)[0] >= 5)
  with pytest.raises(
    MachineryError, match='[3-5] of 20 trajectories.*no pool left.*same command'
  ):
    collect.run(made, _starts())
  assert len(made.asked) < 2 * 20  # it stopped early
  made.faulty, made.asked[:] = lambda job: False, []
  records = collect.run(made, _starts())
  assert [r.index for r in records] == list(range(20))
  assert not any(r.fault for r in records)
  again = {_of(job)[0] for job in made.asked}
  assert again and again <= set(range(5, 20))  # the whole ones are kept


def test_the_executions_of_a_trajectory_have_a_time_limit(tmp_path):
  made = _Collecting(tmp_path, lambda job: False)
  made.exec_s, made.config.collect.time_limit_s = 3.0, 5.0
  made.config.collect.max_steps = 9
  records = collect.run(made, _starts())
  assert {len(r.steps) for r in records} == {2}
  assert not any(r.fault for r in records)
  assert sorted(set(made.left)) == [2.0, 5.0]


def test_a_stopped_collection_does_not_wait_for_its_trajectories(tmp_path):
  """The step under way is finished, whole trajectories are kept."""

  def told(job):
    if _of(job) == (9, 1):
      made.stop.signal = signal.SIGTERM
    return False

  made = _Collecting(tmp_path, told)
  made.config.collect.max_steps = 6
  with pytest.raises(
    Interrupted, match='SIGTERM: stopped; .*trajectories.jsonl'
  ):
    collect.run(made, _starts())
  before = list(made.asked)
  assert (9, 5) not in map(_of, before)
  made.stop.signal, made.faulty, made.asked[:] = None, lambda job: False, []
  assert len(collect.run(made, _starts())) == 20
  assert len(before) + len(made.asked) == 20 * 6  # none is carried out twice
  assert not set(before) & set(made.asked)


def test_an_unreachable_expert_is_an_infrastructure_error(tmp_path):
  def gone(*asked):
    raise TextModelError('the endpoint is gone')

  made = _Collecting(tmp_path, lambda job: False, act=gone)
  with pytest.raises(MachineryError, match='TextModelError: the endpoint'):
    collect.run(made, _starts())


def test_an_empty_answer_is_an_infrastructure_error_and_costs_are_kept(
  tmp_path,
):
  def silent(*asked):
    raise NoText('no text')

  with pytest.raises(MachineryError, match='NoText: no text'):
    collect.run(
      _Collecting(tmp_path / 'a', lambda job: False, act=silent), _starts()
    )
  made = _Collecting(tmp_path / 'b', lambda job: False)
  found = [step for r in collect.run(made, _starts()) for step in r.steps]
  assert len(found) == 40 and all(step.answer_s >= 0.0 for step in found)


def test_a_full_disk_is_no_fault_of_a_trajectory(tmp_path):
  def full(*asked):
    raise OSError(errno.ENOSPC, 'No space left on device')

  with pytest.raises(OSError, match='No space'):
    collect.run(_Collecting(tmp_path, lambda job: False, act=full), _starts())


def test_half_a_character_names_a_state_like_any_other():
  state = State('s', 't', {'train.py': ''}, 0.5, 0.5)
  made = starts.with_ideas(state, ('Use SVC \ud83d',))
  assert made.ideas == ('Use SVC \ud83d',)
  others = {starts.with_ideas(state, ideas).state_id for ideas in ((), ('x',))}
  assert len(others | {made.state_id}) == 3
