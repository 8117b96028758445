#!/usr/bin/env bash
# ipykernel: cells that end with a failure, as a notebook's runner sees them.
# One would expect: `!false`, a shell command that fails, and `exit(1)` are errors, and
#   `sys.exit(0)` is none.
# What happens: the reverse. `!false` and `exit(1)` are cells that went well, and the cell
#   after exit(1) runs in the same kernel, its variables there; sys.exit(0) is an error.
#   `%%bash` raises where `!` does not.
# Versions: ipykernel 7.4.0, IPython 9.18.1, nbclient 0.11.0, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages ipykernel==7.4.0 ipython==9.18.1 nbclient==0.11.0 nbformat==5.11.1
export IPYTHONDIR="$home/ipython" JUPYTER_DATA_DIR="$home/jupyter"
program <<'PY'
import nbformat
from nbclient import NotebookClient

cells = ('x = 1', '!false', '%%bash\nfalse', 'import sys; sys.exit(0)', 'exit(1)', 'print(x)')
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
NotebookClient(notebook, timeout=60, kernel_name='python3', allow_errors=True).execute()
for cell in notebook.cells:
  errors = [out.ename for out in cell.outputs if out.output_type == 'error']
  said = [out.text.strip() for out in cell.outputs if out.get('name') == 'stdout']
  print(repr(cell.source), *(errors or ['ok']), *said)
PY
recorded <<'SEEN'
'x = 1' ok
'!false' ok
'%%bash\nfalse' CalledProcessError
'import sys; sys.exit(0)' SystemExit
'exit(1)' ok
'print(x)' ok 1
SEEN
