"""Metric of `breast-cancer`: mean negative log-likelihood of the true class."""

from jaxagent.tasks import scores

score = scores.log_loss('benign')
get_score = scores.entry_point(score)
