#!/usr/bin/env bash
# mlflow: a loss of infinity that is logged and read back.
# One would expect: infinity, as NaN comes back as NaN.
# What happens: the database keeps the largest finite number, 1.797...e308, so isinf of
#   what comes back is false.
# Versions: mlflow 3.17.2, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages mlflow==3.17.2
export MLFLOW_DISABLE_TELEMETRY=true
program <<'PY'
import math

import mlflow

mlflow.set_tracking_uri('sqlite:///runs.db')
with mlflow.start_run() as run:
  for name in ('inf', '-inf', 'nan'):
    mlflow.log_metric(name.strip('-') + '_' * name.count('-'), float(name))
for name, value in sorted(mlflow.get_run(run.info.run_id).data.metrics.items()):
  print(name, value, math.isinf(value))
PY
recorded <<'SEEN'
inf 1.7976931348623157e+308 False
inf_ -1.7976931348623157e+308 False
nan nan False
SEEN
