"""The jitted update: the only place where gradients are taken."""

from jaxagent.learner.config import LearnerConfig
from jaxagent.learner.learner import Learner
from jaxagent.learner.nonfinite import NonFiniteGradientError

__all__ = ['Learner', 'LearnerConfig', 'NonFiniteGradientError']
