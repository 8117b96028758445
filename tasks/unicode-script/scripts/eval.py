"""Metric of `unicode-script`: share of rows whose label is right."""

from jaxagent.tasks import scores

score = scores.accuracy('script')
get_score = scores.entry_point(score)
