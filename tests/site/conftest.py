import subprocess
import sys

import pytest

from tests.runs import ROOT


@pytest.fixture(scope='session')
def built(tmp_path_factory):
  """The folder of the docs site."""
  pytest.importorskip('mkdocs', reason="needs pip install '.[docs]'")
  site = tmp_path_factory.mktemp('site')
  done = subprocess.run(
    [sys.executable, '-m', 'mkdocs', 'build', '--strict', f'--site-dir={site}'],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=300,
  )
  assert done.returncode == 0, done.stderr
  return site
