#!/usr/bin/env bash
# pyarrow: a partitioned table that is written a second time to its folder.
# One would expect: the folder holds the table, as a file that is written again does.
# What happens: every row is there twice. With
#   existing_data_behavior='delete_matching' it is there once.
# Versions: pyarrow 25.0.1, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages pyarrow==25.0.1
program <<'PY'
import pyarrow as pa
import pyarrow.parquet as pq

table = pa.table({'task': ['a', 'b'], 'reward': [0.5, 1.0]})
for more in ({}, {'existing_data_behavior': 'delete_matching'}):
  folder = f'rewards{len(more)}'
  for _ in range(2):
    pq.write_to_dataset(table, folder, partition_cols=['task'], **more)
  print(*more, pq.read_table(folder).num_rows, 'of', table.num_rows)
PY
recorded <<'SEEN'
4 of 2
existing_data_behavior 2 of 2
SEEN
