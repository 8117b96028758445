"""Metric of `diabetes`: root of the mean squared error."""

from jaxagent.tasks import scores

score = scores.rmse('progression')
get_score = scores.entry_point(score)
