"""What a response comes to, with a fake pool: no program runs here."""

from __future__ import annotations

import json
import pathlib

import pytest

from jaxagent import types
from jaxagent.audit import audit, seal
from jaxagent.envs.execution import ScriptRunner
from jaxagent.envs.grading import GradeResult
from jaxagent.envs.solution import Previous, Solution, Task
from jaxagent.envs.solution_env import SolutionEnvironment
from jaxagent.instrumentation import SyntaxInstrumenter, marks
from jaxagent.testing import fake_runs
from tests import made
from tests.instrumentation.running import KEY

O = types.Outcome
CODE = 'import pandas as pd\ntrain = pd.read_csv("data/train.csv")\n1 / 0\n'


class _Pool(fake_runs.FakePool):
  """Leaves what the program would have left."""

  def __init__(self, outcome, collected=(), output=''):
    super().__init__()
    self.outcome, self.collected, self.output = outcome, dict(collected), output

  def _execution(self, job):
    return types.Execution(
      job.job_id,
      self.outcome,
      'fake',
      exec_s=2.0,
      output=self.output,
      collected={k: v for k, v in self.collected.items()},
    )


class _Grader:
  def __init__(self, result):
    self.result, self.asked = result, []

  def grade(self, task, data, split, *, own_work=False):
    self.asked.append((task, data, split, own_work))
    return self.result


def _env(tmp_path, pool, grade=GradeResult(0.9, O.OK, '', 6), **options):
  spec = fake_runs.task_spec(root=pathlib.Path(tmp_path))
  prepared = fake_runs.FakePrepared(spec, tmp_path, {})
  runner = ScriptRunner({'t': prepared}, pool, _Grader(grade))
  return SolutionEnvironment(runner, key=lambda: KEY, **options)


def _marks(*numbers: int) -> tuple[str, bytes]:
  """(name, content) of what a program with these marks leaves."""
  made = SyntaxInstrumenter().instrument(CODE, KEY)
  lines = [marks._digest(KEY, n).encode() + b'\n' for n in numbers]
  return made.collect, b''.join(lines)


def _response(code: str = CODE) -> str:
  return f'A plan.\n```python\n{code}```\n'


def _reward(told) -> float:
  return told.record.earned()


def test_a_valid_solution_is_paid_its_score(tmp_path):
  pool = _Pool(O.OK, {'submission.csv': b'x'}, 'said this')
  env = _env(tmp_path, pool)
  told, run = env.solve(Task('t'), _response(), job_id='j')
  assert _reward(told) == run.score == 0.9
  assert told.exec_s == 2.0 and told.record.observation == 'said this'
  (job,) = pool.jobs
  assert job.script == 'solution.py' and job.collect == ('submission.csv',)
  assert len(job.optional) == 1 and len(job.files) == 3
  assert env.runner.grader.asked == [('t', b'x', 'valid', True)]


def test_a_failed_one_is_paid_its_milestones(tmp_path):
  pool = _Pool(O.SCRIPT_ERROR, [_marks(0, 1)])
  told, _ = _env(tmp_path, pool).solve(Task('t'), _response())
  assert told.record.milestones == ('imported packages', 'loaded data')
  assert _reward(told) == pytest.approx(-9.8)


@pytest.mark.parametrize('kind', ['none', 'verified', 'openai'])
def test_without_marks_there_is_nothing_to_reach(tmp_path, kind):
  pool = _Pool(O.SCRIPT_ERROR, [_marks(0, 1)])
  told, _ = _env(tmp_path, pool, instrumenter=kind).solve(
    Task('t'), _response(), 'no code'
  )
  assert told.record.milestones == () and _reward(told) == -10.0
  assert pool.jobs[0].files == {'solution.py': CODE}
  assert bool(told.record.refused) == (kind == 'openai')


@pytest.mark.parametrize(
  ('passed', 'credits'), [(0, 0), (1, 0), (2, 0), (3, 3), (5, 5)]
)
def test_verified_credit_is_what_the_grader_saw(tmp_path, passed, credits):
  """Nothing before a table was compared with the sample."""
  pool = _Pool(O.OK, {'submission.csv': b'x'})
  grade = GradeResult(None, O.INVALID_SUBMISSION, 'why', passed)
  env = _env(tmp_path, pool, grade, instrumenter='verified')
  told, _ = env.solve(Task('t'), _response())
  assert _reward(told) == pytest.approx(-10 + 0.1 * credits)


def test_a_copy_of_the_sample_earns_nothing(tmp_path):
  pool = _Pool(O.OK, dict([_marks(0, 1), ('submission.csv', b'x')]))
  grade = GradeResult(None, O.INVALID_SUBMISSION, 'a copy', 0)
  told, _ = _env(tmp_path, pool, grade).solve(Task('t'), _response())
  assert told.record.milestones == () and _reward(told) == -10.0
  grade = GradeResult(None, O.INVALID_SUBMISSION, 'no table', 2)
  told, _ = _env(tmp_path, pool, grade).solve(Task('t'), _response())
  assert _reward(told) == pytest.approx(-9.8)


def test_a_response_without_a_program_runs_nothing(tmp_path):
  pool = _Pool(O.OK)
  told, run = _env(tmp_path, pool).solve(Task('t'), 'words')
  assert run is None and not pool.jobs
  assert told.outcome is O.INVALID_FORMAT and _reward(told) == -10.0
  assert 0 < told.exec_s < 0.1 and told.record.message == 'no code block'


@pytest.mark.parametrize('text', ['\ud800', '\0'])
def test_what_no_file_can_hold_is_the_policys_fault(tmp_path, text):
  pool = _Pool(O.OK)
  told, run = _env(tmp_path, pool).solve(
    Task('t'), _response(f'x = "{text}"\n')
  )
  assert run is None and not pool.jobs
  assert told.outcome is O.INVALID_FORMAT and _reward(told) == -10.0


def test_ours_is_nobodys_reward(tmp_path):
  pool = _Pool(O.INFRASTRUCTURE)
  told, _ = _env(tmp_path, pool).solve(Task('t'), _response())
  assert _reward(told) is None and len(pool.jobs) == 2


def test_a_long_program_gets_neither_marks_nor_diff(tmp_path):
  code = 'x = 1\n' * 150_000
  pool = _Pool(O.OK, {'submission.csv': b'x'})
  before = Previous(Solution('p', 'y = 2\n' * 1000), '')
  told, _ = _env(tmp_path, pool).solve(
    Task('t', before, 'id7'), _response(code)
  )
  assert told.record.diff == '' and told.record.refused
  assert told.record.improves == 'id7' and _reward(told) == 0.9


def test_the_diff_is_to_what_it_improves(tmp_path):
  pool = _Pool(O.OK, {'submission.csv': b'x'})
  before = Previous(Solution('p', 'a = 1\nb = 2\n'), '')
  told, _ = _env(tmp_path, pool).solve(
    Task('t', before, 'id'), _response('a = 1\nb = 3\n')
  )
  assert '-b = 2\n+b = 3' in told.record.diff


def test_an_audit_derives_every_reward_again(tmp_path):
  records = []
  for pool, grade in (
    (_Pool(O.OK, {'submission.csv': b'x'}), GradeResult(0.9, O.OK, '', 6)),
    (_Pool(O.SCRIPT_ERROR, [_marks(0, 1)]), None),
    (_Pool(O.TIMEOUT, [_marks(0)]), None),
  ):
    told, _ = _env(tmp_path, pool, grade).solve(Task('t'), _response())
    records.append(made.turn(told.record, reward=_reward(told)).to_json())
  folder = tmp_path / 'traces'
  folder.mkdir()

  def differences(changed) -> list:
    path = folder / 'update_0.jsonl'
    lines = seal(changed, path.stem)
    path.write_text(''.join(json.dumps(r) + '\n' for r in lines))
    return audit(folder)['differences']

  assert differences(records) == []
  for change in ({'reward': 1.0}, {'milestones': []}, {'kind': 'other'}):
    first, second, third = records
    assert len(differences([first, {**second, **change}, third])) == 1


def test_an_unknown_instrumenter(tmp_path):
  with pytest.raises(ValueError, match="instrumenter='x'; choose one of"):
    _env(tmp_path, _Pool(O.OK), instrumenter='x')
