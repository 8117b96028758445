#!/usr/bin/env bash
# numpy: a restored generator draws the same numbers and spawns other children.
# One would expect: bit_generator.state is all that a checkpoint needs to go on as before.
# What happens: Generator.spawn counts its children in the seed sequence, which is not part of
#   the state. A generator of the same seed with the state set spawns the first children again,
#   whose streams are used already. Pickle keeps both.
# Versions: numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages numpy==2.4.6
program <<'PY'
import pickle

import numpy as np


def first(child):
  return int(child.integers(1_000_000))


rng = np.random.default_rng(7)
used = [first(child) for child in rng.spawn(3)]
by_state = np.random.default_rng(7)
by_state.bit_generator.state = rng.bit_generator.state
by_pickle = pickle.loads(pickle.dumps(rng))
print('next draw equal:', len({g.random() for g in (rng, by_state, by_pickle)}) == 1)
true, state, pickled = (first(g.spawn(1)[0]) for g in (rng, by_state, by_pickle))
print('next child: by pickle equal', pickled == true)
print('next child: by state equal', state == true)
print('next child: by state is one that was used before', state in used)
PY
recorded <<'SEEN'
next draw equal: True
next child: by pickle equal True
next child: by state equal False
next child: by state is one that was used before True
SEEN
