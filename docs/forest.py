"""The example of README.md: the policy says how deep the trees of a forest are."""

from jaxagent.config.base import base
from jaxagent.recipes.one_program import OneProgram


class Forest(OneProgram):
  name, prompt, responses = 'forest', '{task}, depth: ', '123456789'

  def program(self, problem, response):  # what is run in the sandbox
    forest = f'ensemble.RandomForestClassifier(max_depth={response})'
    fit = f'model = {forest}\nmodel.fit('
    code = self.starter(problem.task).replace('model.fit(', fit)
    return f'from sklearn import ensemble\n{code}'


def get_config(arg=''):
  config = base(f'{__file__}:Forest')
  config.tasks.update(heldin=('digits', 'wine'), heldout=('breast-cancer',))
  config.work_dir, config.sft.epochs = 'workdir/forest', 40
  config.rl.update(estimator='grpo', group_size=8, batch_size=16, updates=16)
  return config.lock()
