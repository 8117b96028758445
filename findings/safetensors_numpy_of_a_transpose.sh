#!/usr/bin/env bash
# safetensors: a transposed NumPy array is saved as other numbers.
# One would expect: what is saved comes back, or an error for an array that is not
#   contiguous.
# What happens: shape and bytes are written as if the array were in C order. A kernel that is
#   transposed for another framework, a slice with a step and an array in Fortran order come
#   back with their numbers in other places; no word, and shape and type are right.
#   np.ascontiguousarray before the save is the cure.
# Versions: safetensors 0.8.0, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages safetensors==0.8.0 numpy==2.4.6
program <<'PY'
import numpy as np
from safetensors.numpy import load_file, save_file

kernel = np.arange(6.0).reshape(2, 3)
for name, array in (
  ('as made', kernel),
  ('transposed', kernel.T),
  ('every other column', kernel[:, ::2]),
  ('Fortran order', np.asfortranarray(kernel)),
  ('transposed, contiguous', np.ascontiguousarray(kernel.T)),
):
  save_file({'x': array}, 'x.safetensors')
  back = load_file('x.safetensors')['x']
  print(f'{name}: equal {np.array_equal(back, array)}, {back.ravel().tolist()}')
PY
recorded <<'SEEN'
as made: equal True, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
transposed: equal False, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
every other column: equal False, [0.0, 1.0, 2.0, 3.0]
Fortran order: equal False, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
transposed, contiguous: equal True, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
SEEN
