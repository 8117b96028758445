"""An import that leaves a thread behind leaves nothing to fork jobs from."""

from __future__ import annotations

import pathlib
import warnings

import pytest

from jaxagent.sandbox import launcher, local
from jaxagent.types import Job, Outcome

pytestmark = [pytest.mark.alone, pytest.mark.timeout(120)]
ROOT = str(pathlib.Path(local.__file__).resolve().parents[2])
# What the launcher is started with: the second import of its zygote starts a thread,
# also once it has started itself again inside its own root.
HOOK = f"""
import sys, threading, time
sys.path[:0] = [{ROOT!r}, '/host' + {ROOT!r}]
from jaxagent.sandbox import _zygote, launcher

class Importing:
  @staticmethod
  def import_module(name):
    if name == _zygote.MODULES[1]:
      threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    return __import__(name)

_zygote.importlib = Importing
launcher.start_command = lambda root: sys.orig_argv[sys.orig_argv.index('-c') + 1]
launcher.main()
"""


@pytest.mark.parametrize(
  'disable', [[], ['namespaces']], ids=['inside', 'in place']
)
def test_jobs_import_for_themselves_where_an_import_leaves_threads(
  disable, monkeypatch
):
  monkeypatch.setattr(launcher, 'start_command', lambda root: HOOK)
  backend = local.LocalBackend(1, disable=disable)
  try:
    with pytest.warns(
      UserWarning, match=r'numpy\.random leaves threads running'
    ):
      backend.start()
    assert not backend.zygote
    if any('chmod' in note for note in backend.hello['notes']):
      return  # other user ids may not execute this checkout's interpreter
    job = Job(
      'a',
      'm.py',
      files={'m.py': 'import numpy; print(numpy.ones(2).sum())'},
      zygote=True,
    )
    result = backend.run(job, 0, 60.0)
    assert (result.outcome, result.output.strip()) == (Outcome.OK, '2.0')
  finally:
    backend.close()


def test_pandas_with_pyarrow_leaves_no_thread_running():
  pytest.importorskip('pyarrow')
  backend = local.LocalBackend(1)
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('error')
      backend.start()
    assert backend.zygote
  finally:
    backend.close()
