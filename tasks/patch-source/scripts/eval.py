"""Metric of `patch-source`: area under the ROC curve."""

from jaxagent.tasks import scores

score = scores.roc_auc('china')
get_score = scores.entry_point(score)
