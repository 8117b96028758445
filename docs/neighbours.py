"""The example of README.md: the policy says how many neighbours vote."""

from dataclasses import dataclass

from jaxagent.config.base import base
from jaxagent.recipes.one_turn import Carried, OneTurn, Problem
from jaxagent.types import NoReward, Record


@dataclass(frozen=True, kw_only=True)
class Scored(Record):
  KIND, DERIVED_FROM = 'scored', ('outcome', 'score_after', 'start', 'best')
  start: float  # scores of the task's first script, and of the best known
  best: float

  def derive(self, switches=None):  # the reward
    if self.outcome.is_infrastructure:  # not the policy's fault: tried again
      return NoReward.of(self.outcome)
    if self.score_after is None:  # it crashed, or wrote no submission
      return -1.0
    gain = (self.score_after - self.start) / (self.best - self.start)
    return max(-1.0, gain)


class Neighbours(OneTurn):
  name, record_type = 'neighbours', Scored

  def problems(self, tasks):
    return {task: Problem(task, f'{task}, neighbours: ') for task in tasks}

  def demonstrations(self):  # what SFT learns from, before RL
    asked = self.problems(self.context.heldin).values()
    return [(problem, digit) for problem in asked for digit in '123456789']

  def carry_out(self, problem, response, job_id):
    model = f'model = neighbors.KNeighborsClassifier({response})\nmodel.fit('
    start = self.starts[problem.task].state  # a script that trains a model
    code = start.files[start.script].replace('model.fit(', model)
    code = f'from sklearn import neighbors\n{code}'
    run = self.run_program(problem.task, code, job_id)  # in the sandbox
    spec = self.context.spec(problem.task)
    scale = {'start': spec.m_init, 'best': spec.m_best}
    fields = self.fields_of(problem.task, run)
    return Carried(Scored(response=response, **scale, **fields), run)


def get_config(arg=''):
  config = base(f'{__file__}:Neighbours')
  config.work_dir = 'workdir/neighbours'
  config.tasks.heldin = ('digits', 'wine')
  config.tasks.heldout = ('breast-cancer',)
  config.sft.epochs = 40
  config.rl.estimator, config.rl.group_size = 'grpo', 8
  config.rl.batch_size, config.rl.updates = 16, 16
  return config.lock()
