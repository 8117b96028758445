"""Metric of `digits`: share of rows whose label is right."""

from jaxagent.tasks import scores

score = scores.accuracy('label')
get_score = scores.entry_point(score)
