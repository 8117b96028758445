"""Metric of `flower-denoise`: root of the mean squared error."""

from jaxagent.tasks import scores

score = scores.rmse('clean')
get_score = scores.entry_point(score)
