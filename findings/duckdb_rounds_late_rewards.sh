#!/usr/bin/env bash
# duckdb: rewards that are whole in the first 30,000 lines of a file are whole in all.
# One would expect: a later 0.75 widens the column or is an error, as a later key is one.
# What happens: types are those of a sample, and later fractions of JSONL and CSV files are
#   rounded to whole numbers without a word. sample_size=-1 reads all of the file first.
# Versions: duckdb 2.0.1, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages duckdb==2.0.1
program <<'PY'
import json

import duckdb

rows = [{'step': i, 'reward': i % 2} for i in range(30_000)]
rows += [{'step': i, 'reward': 0.75} for i in range(30_000, 30_004)]
with open('rows.jsonl', 'w') as file:
  file.writelines(json.dumps(row) + '\n' for row in rows)
with open('rows.csv', 'w') as file:
  file.write('step,reward\n')
  file.writelines(f'{row["step"]},{row["reward"]}\n' for row in rows)
for table in (
  "'rows.jsonl'",
  "read_json('rows.jsonl', sample_size=-1)",
  "'rows.csv'",
  "read_csv('rows.csv', sample_size=-1)",
):
  found = duckdb.sql(f'select * from {table}')
  last = found.filter('step >= 30000').project('reward').fetchall()
  print(table, found.columns, [float(reward) for (reward,) in last])
PY
recorded <<'SEEN'
'rows.jsonl' ['step', 'reward'] [1.0, 1.0, 1.0, 1.0]
read_json('rows.jsonl', sample_size=-1) ['step', 'reward'] [0.75, 0.75, 0.75, 0.75]
'rows.csv' ['step', 'reward'] [1.0, 1.0, 1.0, 1.0]
read_csv('rows.csv', sample_size=-1) ['step', 'reward'] [0.75, 0.75, 0.75, 0.75]
SEEN
