"""Metric of `flower-columns`: mean absolute error."""

from jaxagent.tasks import scores

score = scores.mae('ahead')
get_score = scores.entry_point(score)
