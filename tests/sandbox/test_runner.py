"""What a job's interpreter does before and around its script."""

import subprocess
import sys

_IMPORT = """
import sys
from jaxagent.sandbox import _runner
_runner._read_modules_alike(sys.argv[1])
sys.path.insert(0, sys.argv[2])
import lonely
print(lonely.VALUE)
"""


def test_a_package_without_bytecode_is_imported_from_outside_the_workspace(
  tmp_path,
):
  (tmp_path / 'lonely.py').write_text('VALUE = 7\n')
  for home in (tmp_path / 'workspace', tmp_path):
    done = subprocess.run(
      [sys.executable, '-B', '-c', _IMPORT, str(home), str(tmp_path)],
      capture_output=True,
      text=True,
    )
    assert done.stdout == '7\n', done.stderr
