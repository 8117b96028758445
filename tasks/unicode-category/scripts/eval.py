"""Metric of `unicode-category`: F1 averaged over the classes with equal weight."""

from jaxagent.tasks import scores

score = scores.f1_macro('category')
get_score = scores.entry_point(score)
