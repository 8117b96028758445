#!/usr/bin/env bash
# orbax-checkpoint: below a folder with brackets in its name a save is lost in silence.
# One would expect: a checkpoint is saved below any folder that can be written, or the
#   save raises.
# What happens: save() returns, files are there, but manifest.ocdbt is never written
#   (parts are merged by a glob over the whole path), metadata() has no tree, and
#   restore() finds nothing, not even from a copy under a plain name. Names such as
#   `sweep[lr=3e-4]` are common.
# Versions: orbax-checkpoint 0.12.8, jax 0.10.2, numpy 2.4.6, Python 3.11, Linux.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages orbax-checkpoint==0.12.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import os
import pathlib
import shutil

os.environ['JAX_PLATFORMS'] = 'cpu'
import numpy as np
import orbax.checkpoint as ocp

tree = {'weights': np.arange(3.0)}
for name in ('sweep', 'sweep[1]'):
  path = pathlib.Path(name).absolute() / 'step_1'
  keeper = ocp.Checkpointer(ocp.PyTreeCheckpointHandler())
  keeper.save(path, tree)
  shutil.copytree(path, 'copy', dirs_exist_ok=True)
  try:
    back = keeper.restore(pathlib.Path('copy').absolute())['weights'].tolist()
  except Exception as error:
    back = type(error).__name__
  manifest = (path / 'manifest.ocdbt').exists()
  found = keeper.metadata(path).item_metadata is not None
  print(f'{name}: saved, manifest {manifest}, metadata {found}, a copy restores: {back}')
  shutil.rmtree('copy')
PY
recorded <<'SEEN'
sweep: saved, manifest True, metadata True, a copy restores: [0.0, 1.0, 2.0]
sweep[1]: saved, manifest False, metadata False, a copy restores: ValueError
SEEN
