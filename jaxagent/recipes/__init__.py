"""Experiments: what is trained or measured, from its data to its report.

`Recipe` is what `config.recipe` names; `TrainedPolicy` has the stages of those that
train a policy. One of your own: `python -m jaxagent.recipes new NAME --dir DIR`.
"""

from jaxagent.config.recipe import Recipe
from jaxagent.recipes.trained_policy import TrainedPolicy

__all__ = ['Recipe', 'TrainedPolicy']
