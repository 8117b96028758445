#!/usr/bin/env bash
# transformers 5: `rope_scaling` of type default beside `rope_parameters` resets the base.
# One would expect: a config that says rope_parameters.rope_theta=700000 has that base; a
#   rope_scaling that says "default" changes nothing.
# What happens: the old key replaces the new one as a whole, and the base falls to 10000
#   without a word. Tools that add rope_scaling to a converted config make such files.
# Versions: transformers 5.24.0, Python 3.11; without PyTorch.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages transformers==5.24.0
program <<'PY'
from transformers import Qwen2Config

new = {'rope_type': 'default', 'rope_theta': 700000.0}
print('alone', Qwen2Config(rope_parameters=new).rope_parameters['rope_theta'])
both = Qwen2Config(rope_parameters=new, rope_scaling={'rope_type': 'default'})
print('both', both.rope_parameters['rope_theta'])
PY
recorded <<'SEEN'
alone 700000.0
both 10000.0
SEEN
