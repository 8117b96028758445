#!/usr/bin/env bash
# fsspec: a folder that is uploaded twice to the same address.
# One would expect: the second time writes the same files again.
# What happens: as the address exists now, the second time puts the folder into it, one level
#   deeper, and the files at the address stay those of the first. Slashes at both ends, as of
#   'checkpoint/', make both times equal.
# Versions: fsspec 2026.9.0, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages fsspec==2026.9.0
program <<'PY'
import pathlib

import fsspec

folder = pathlib.Path('checkpoint')
folder.mkdir()
memory = fsspec.filesystem('memory')
for end in ('', '/'):
  for step in ('10', '20'):
    (folder / 'step').write_text(step)
    memory.put(f'checkpoint{end}', f'/bucket{len(end)}/run{end}', recursive=True)
  for path in sorted(memory.find(f'/bucket{len(end)}')):
    print(path, memory.cat(path).decode())
PY
recorded <<'SEEN'
/bucket0/run/checkpoint/step 20
/bucket0/run/step 10
/bucket1/run/step 20
SEEN
