"""The example of README.md: the policy says how many neighbours vote."""

from jaxagent.config.base import base
from jaxagent.recipes.one_program import OneProgram, Problem


class Neighbours(OneProgram):
  name = 'neighbours'

  def problems(self, tasks):  # what the policy is asked
    return {task: Problem(task, f'{task}, neighbours: ') for task in tasks}

  def demonstrations(self):  # what it is fine-tuned on before RL
    asked = self.problems(self.context.heldin).values()
    return [(problem, digit) for problem in asked for digit in '123456789']

  def program(self, problem, response):  # what is run in the sandbox
    model = f'model = neighbors.KNeighborsClassifier({response})\nmodel.fit('
    code = self.starter(problem.task).replace('model.fit(', model)
    return f'from sklearn import neighbors\n{code}'


def get_config(arg=''):
  config = base(f'{__file__}:Neighbours')
  config.work_dir, config.sft.epochs = 'workdir/neighbours', 40
  config.tasks.heldin = ('digits', 'wine')
  config.tasks.heldout = ('breast-cancer',)
  config.rl.estimator, config.rl.group_size = 'grpo', 8
  config.rl.batch_size, config.rl.updates = 16, 16
  return config.lock()
