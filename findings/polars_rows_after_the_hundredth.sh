#!/usr/bin/env bash
# polars: a table of records cuts fractions and loses keys that begin after the hundredth.
# One would expect: DataFrame(records) has all keys, and a later 0.75 widens the column or is an
#   error, since strict=True is the default.
# What happens: names and types are those of the first 100 records (infer_schema_length). A
#   later 0.75 in a column of whole numbers is 0, a later key is dropped, without a word.
#   read_ndjson drops the key as well and raises for the fraction.
# Versions: polars 2.1.0, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages polars==2.1.0
program <<'PY'
import io
import json

import polars

records = [{'step': i, 'reward': 1} for i in range(100)]
late = {'step': 100, 'error': 'died'}
for name, more in (('fraction', {'reward': 0.75}), ('whole', {'reward': 1})):
  rows = [*records, late | more]
  text = io.StringIO('\n'.join(json.dumps(row) for row in rows))
  for reader, read in (
    ('DataFrame', lambda: polars.DataFrame(rows)),
    ('from_dicts', lambda: polars.from_dicts(rows)),
    ('all read first', lambda: polars.DataFrame(rows, infer_schema_length=None)),
    ('read_ndjson', lambda: polars.read_ndjson(text)),
  ):
    try:
      found = read()
      print(f'{name}, {reader}: {sorted(found.columns)}, last {found["reward"][-1]}')
    except polars.exceptions.ComputeError:
      print(f'{name}, {reader}: refused')
PY
recorded <<'SEEN'
fraction, DataFrame: ['reward', 'step'], last 0
fraction, from_dicts: ['reward', 'step'], last 0
fraction, all read first: ['error', 'reward', 'step'], last 0.75
fraction, read_ndjson: refused
whole, DataFrame: ['reward', 'step'], last 1
whole, from_dicts: ['reward', 'step'], last 1
whole, all read first: ['error', 'reward', 'step'], last 1
whole, read_ndjson: ['reward', 'step'], last 1
SEEN
