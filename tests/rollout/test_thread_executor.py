"""Works on threads: when one has begun, and what a cancel leaves."""

from __future__ import annotations

import threading
import time
import types as namespaces

from jaxagent.rollout.records import WorkResult
from jaxagent.rollout.thread_executor import ThreadExecutor
from jaxagent.types import Outcome


def _work(name, attempt=1):
  prompt = namespaces.SimpleNamespace(prompt_id=name)
  return namespaces.SimpleNamespace(prompt=prompt, attempt=attempt)


def _until(holds):
  end = time.monotonic() + 5.0
  while not holds():
    assert time.monotonic() < end
    time.sleep(0.001)


def test_a_work_begins_when_a_thread_takes_it():
  gates = {name: threading.Event() for name in 'ab'}

  def run(work):
    gates[work.prompt.prompt_id].wait(5.0)
    return WorkResult(
      work.prompt.prompt_id, None, Outcome.OK, attempt=work.attempt
    )

  executor = ThreadExecutor(run, threads=1, lookahead=1)
  before = time.monotonic()
  executor.submit(_work('a'))
  executor.submit(_work('b'))
  _until(lambda: executor.begun('a') is not None)
  assert before <= executor.begun('a') <= time.monotonic()
  assert executor.begun('b') is None and executor.begun('c') is None

  executor.cancel('a')  # its thread is busy with it all the same
  executor.submit(_work('a', attempt=2))
  assert executor.begun('a') is None
  gates['a'].set()
  gates['b'].set()
  results = []
  _until(lambda: results.extend(executor.wait(0.1)) or len(results) == 2)
  assert [(r.prompt_id, r.attempt) for r in results] == [('b', 1), ('a', 2)]
  _until(lambda: executor.begun('a') is None and executor.begun('b') is None)
  executor.close()
