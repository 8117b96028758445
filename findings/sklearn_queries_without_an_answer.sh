#!/usr/bin/env bash
# scikit-learn: mean scores of rankings where one of the queries has nothing relevant.
# One would expect: such a query is left out, or counts in the same way in both metrics.
# What happens: label_ranking_average_precision_score counts it as 1.0, ndcg_score as 0.0.
# Versions: scikit-learn 1.9.1, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages scikit-learn==1.9.1
program <<'PY'
from sklearn.metrics import label_ranking_average_precision_score, ndcg_score

scores = [[0.9, 0.2, 0.1]]
for name, metric in (
  ('average precision', label_ranking_average_precision_score),
  ('ndcg', ndcg_score),
):
  for relevant in ([[0, 1, 0]], [[0, 0, 0]]):
    print(name, relevant[0], round(float(metric(relevant, scores)), 3))
PY
recorded <<'SEEN'
average precision [0, 1, 0] 0.5
average precision [0, 0, 0] 1.0
ndcg [0, 1, 0] 0.631
ndcg [0, 0, 0] 0.0
SEEN
