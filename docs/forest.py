"""The example of README.md: the policy says how deep the trees of a forest are."""

from jaxagent.recipes.one_program import OneProgram, base


class Forest(OneProgram):
  name, prompt, responses = 'forest', '{task}, depth: ', '123456789' * 5

  def program(self, problem, response):  # what is run in the sandbox
    forest = f'model = RandomForestClassifier(max_depth={response})'
    code = self.starter(problem.task).replace('model.fit', f'{forest}.fit')
    return f'from sklearn.ensemble import RandomForestClassifier\n{code}'


def get_config(arg=''):
  config = base(f'{__file__}:Forest')
  config.tasks.update(heldin=('digits', 'wine'), heldout=('breast-cancer',))
  config.rl.update(estimator='grpo', group_size=8, batch_size=16, updates=16)
  return config.lock()
