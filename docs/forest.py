"""The example of README.md: the policy says how deep the trees of a forest are."""

from jaxagent.config.base import base
from jaxagent.recipes.one_program import OneProgram, Problem


class Forest(OneProgram):
  name = 'forest'

  def problems(self, tasks):  # what the policy is asked
    return {task: Problem(task, f'{task}, depth: ') for task in tasks}

  def demonstrations(self):  # what it is fine-tuned on before RL
    asked = self.problems(self.context.heldin).values()
    return [(problem, digit) for problem in asked for digit in '123456789']

  def program(self, problem, response):  # what is run in the sandbox
    forest = f'ensemble.RandomForestClassifier(max_depth={response})'
    fit = f'model = {forest}\nmodel.fit('
    code = self.starter(problem.task).replace('model.fit(', fit)
    return f'from sklearn import ensemble\n{code}'


def get_config(arg=''):
  config = base(f'{__file__}:Forest')
  config.work_dir, config.sft.epochs = 'workdir/forest', 40
  config.tasks.heldin = ('digits', 'wine')
  config.tasks.heldout = ('breast-cancer',)
  config.rl.estimator, config.rl.group_size = 'grpo', 8
  config.rl.batch_size, config.rl.updates = 16, 16
  return config.lock()
