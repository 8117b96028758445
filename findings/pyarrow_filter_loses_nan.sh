#!/usr/bin/env bash
# pyarrow: a filter while a Parquet file is read loses rows of NaN that the same filter of
#   the table that was read keeps.
# One would expect: read_table(file, filters=f) is read_table(file).filter(f).
# What happens: row groups are left out by their smallest and largest number, which say
#   nothing of NaN. Where all numbers of a group are 5 its NaN is missing among "is NaN" and
#   "not 5", where they are 5 at most among "not at most 5"; a group of NaN alone is read.
#   So what a filter finds depends on how rows were grouped when they were written.
# Versions: pyarrow 25.0.1, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages pyarrow==25.0.1
program <<'PY'
import math

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

x = pc.field('x')
filters = {
  'is NaN': pc.is_nan(x),
  'not 5': x != 5.0,
  'not at most 5': ~(x <= 5.0),
  'above 4': x > 4.0,
}
for values in ([5.0, math.nan], [5.0, 4.5, math.nan], [math.nan]):
  table = pa.table({'x': values})
  pq.write_table(table, 'file.parquet')
  for name, wanted in filters.items():
    read = pq.read_table('file.parquet', filters=wanted)['x'].to_pylist()
    whole = pq.read_table('file.parquet').filter(wanted)['x'].to_pylist()
    print(f'{values} {name}: reading {read}, afterwards {whole}')
PY
recorded <<'SEEN'
[5.0, nan] is NaN: reading [], afterwards [nan]
[5.0, nan] not 5: reading [], afterwards [nan]
[5.0, nan] not at most 5: reading [], afterwards [nan]
[5.0, nan] above 4: reading [5.0], afterwards [5.0]
[5.0, 4.5, nan] is NaN: reading [nan], afterwards [nan]
[5.0, 4.5, nan] not 5: reading [4.5, nan], afterwards [4.5, nan]
[5.0, 4.5, nan] not at most 5: reading [], afterwards [nan]
[5.0, 4.5, nan] above 4: reading [5.0, 4.5], afterwards [5.0, 4.5]
[nan] is NaN: reading [nan], afterwards [nan]
[nan] not 5: reading [nan], afterwards [nan]
[nan] not at most 5: reading [nan], afterwards [nan]
[nan] above 4: reading [], afterwards []
SEEN
