"""Metric of `china-scanline`: root of the mean squared error."""

from jaxagent.tasks import scores

score = scores.rmse('next')
get_score = scores.entry_point(score)
