#!/usr/bin/env bash
# flax: flatten_dict(sep=...) drops weights where two names come out equal.
# One would expect: two leaves in, two out, or an error.
# What happens: {'a/b': x, 'a': {'b': y}} with sep='/' has one leaf, the later; names that hold
#   the separator come from other frameworks ('model.layers.0' beside {'model': ...}). And
#   what has no leaves is gone: a module without weights is not there after unflatten_dict.
# Versions: flax 0.12.8, jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages flax==0.12.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import os

os.environ['JAX_PLATFORMS'] = 'cpu'
from flax import traverse_util

weights = {'layer.kernel': 1, 'layer': {'kernel': 2, 'dropout': {}}}
flat = traverse_util.flatten_dict(weights, sep='.')
print('flat:', flat)
print('back:', traverse_util.unflatten_dict(flat, sep='.'))
print('by tuples:', traverse_util.flatten_dict(weights))
PY
recorded <<'SEEN'
flat: {'layer.kernel': 2}
back: {'layer': {'kernel': 2}}
by tuples: {('layer.kernel',): 1, ('layer', 'kernel'): 2}
SEEN
