#!/usr/bin/env bash
# grain: whole numbers in the first example, and fractions of all later ones are cut.
# One would expect: packing examples whose types differ gives the wider type, as batch()
#   of the same library does, or an error.
# What happens: FirstFitPackIterDataset and ConcatThenSplitIterDataset make their arrays
#   by the first example. Where its rewards are 0 and 1, a later 0.75 is 0, and an int64
#   beyond 32 bits behind an int32 wraps; no word of it. batch() widens.
# Versions: grain 0.2.18, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages grain==0.2.18 numpy==2.4.6
program <<'PY'
import grain
import numpy as np
from grain.experimental import ConcatThenSplitIterDataset, FirstFitPackIterDataset


def seen(name, examples):
  source = grain.MapDataset.source([{'reward': one} for one in examples])
  stream, length = source.to_iter_dataset(), {'reward': 6}
  packs = {
    'first fit': FirstFitPackIterDataset(
      stream, num_packing_bins=1, length_struct=length
    ),
    'concatenated': ConcatThenSplitIterDataset(stream, length_struct=length),
    'batch': source.batch(len(examples)),
  }
  for how, pack in packs.items():
    first = next(iter(pack))
    rewards = (first[0] if isinstance(first, tuple) else first)['reward']
    print(f'{name}, {how}: {rewards.dtype} {rewards.ravel().tolist()}')


seen('rewards', [np.array([0, 1]), np.array([0.75, -0.5]), np.array([0.25, 1.0])])
wide = np.array([2**40, 5])
seen('counts', [np.array([1, 2], np.int32), wide, wide])
PY
recorded <<'SEEN'
rewards, first fit: int64 [0, 1, 0, 0, 0, 1]
rewards, concatenated: int64 [0, 1, 0, 0, 0, 1]
rewards, batch: float64 [0.0, 1.0, 0.75, -0.5, 0.25, 1.0]
counts, first fit: int32 [1, 2, 0, 5, 0, 5]
counts, concatenated: int32 [1, 2, 0, 5, 0, 5]
counts, batch: int64 [1, 2, 1099511627776, 5, 1099511627776, 5]
SEEN
