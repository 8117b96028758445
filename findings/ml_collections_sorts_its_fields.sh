#!/usr/bin/env bash
# ml_collections: a ConfigDict is walked by name, whatever order it was written in.
# One would expect: a config of stages, layers or a mixture is walked in the order of the
#   dict that it was made of, as its JSON shows it.
# What happens: iteration, items(), ** and to_dict() are sorted by name (capitals first),
#   to_json() alone is not: zip() of two such configs pairs what does not belong together.
#   And a reference is no default: to assign to the field that holds one changes the field it
#   came from; a field of None takes any type afterwards.
# Versions: ml_collections 1.1.0, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages ml_collections==1.1.0
program <<'PY'
from ml_collections import ConfigDict

stages = ConfigDict({'sft': 3, 'rl': 64, 'Evaluate': 1})
print('walked', list(stages), dict(**stages))
print('stored', stages.to_json(), list(stages.to_dict()))

rates = ConfigDict({'policy': 1e-4})
rates.value = rates.get_ref('policy')
rates.value = 1e-3
print('policy', rates.policy)

open_field = ConfigDict({'rate': 0.1})
open_field.rate = None
open_field.rate = 'fast'
print('rate', open_field.rate)
PY
recorded <<'SEEN'
walked ['Evaluate', 'rl', 'sft'] {'Evaluate': 1, 'rl': 64, 'sft': 3}
stored {"sft": 3, "rl": 64, "Evaluate": 1} ['Evaluate', 'rl', 'sft']
policy 0.001
rate fast
SEEN
