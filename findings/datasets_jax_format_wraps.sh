#!/usr/bin/env bash
# datasets: with_format('jax') of float64 and int64 columns.
# One would expect: the numbers of the columns, or an error where jax's 32 bits do not hold
#   them.
# What happens: with jax's default of 32 bits int64 wraps, so times in milliseconds come out
#   negative, and times in seconds are rounded to 128 of them, without a word.
# Versions: datasets 5.2.0, jax 0.10.2, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages datasets==5.2.0 jax==0.10.2 numpy==2.4.6
export HF_HOME="$home/hf" HF_HUB_OFFLINE=1
program <<'PY'
import datasets

rows = datasets.Dataset.from_dict(
  {'seconds': [1_790_000_100.0], 'milliseconds': [1_790_000_100_000]}
)
print('as it is', rows[0])
row = rows.with_format('jax')[0]
print('jax', {key: (str(value.dtype), value.item()) for key, value in row.items()})
PY
recorded <<'SEEN'
as it is {'seconds': 1790000100.0, 'milliseconds': 1790000100000}
jax {'seconds': ('float32', 1790000128.0), 'milliseconds': ('int32', -1001262432)}
SEEN
