#!/usr/bin/env bash
# pyarrow, duckdb: a folder of Parquet shards whose later ones have one more column.
# One would expect: the column, with nulls where a shard lacks it, or an error.
# What happens: the columns are those of the first file, and the new one is left
#   out without a word. pyarrow.Table.from_pylist takes its columns from the first record in
#   the same way.
# Versions: pyarrow 25.0.1, duckdb 2.0.1, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages pyarrow==25.0.1 duckdb==2.0.1
program <<'PY'
import pathlib

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

records = [{'step': 1}, {'step': 2, 'reward': 0.5}]
print('from_pylist', pa.Table.from_pylist(records).to_pylist())
shards = pathlib.Path('shards')
shards.mkdir()
for i, record in enumerate(records):
  pq.write_table(pa.Table.from_pylist([record]), shards / f'{i}.parquet')
print('read_table', pq.read_table(shards).to_pylist())
print('duckdb', duckdb.sql("from 'shards/*.parquet' order by step").fetchall())
every = "from read_parquet('shards/*.parquet', union_by_name=true) order by step"
print('duckdb, union_by_name', duckdb.sql(every).fetchall())
PY
recorded <<'SEEN'
from_pylist [{'step': 1}, {'step': 2}]
read_table [{'step': 1}, {'step': 2}]
duckdb [(1,), (2,)]
duckdb, union_by_name [(1, None), (2, 0.5)]
SEEN
