"""Turns on a GPU that threads share; the lock itself runs anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from jaxagent.devices import accelerator


def test_whoever_has_asked_first_is_next():
  lock, order, waiting = accelerator.FairLock(), [], []

  def ask(n):
    waiting.append(n)
    with lock:
      order.append(n)

  threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
  with lock:
    for n, thread in enumerate(threads):
      thread.start()
      while len(lock._queue) < n + 2:  # it stands in the queue
        time.sleep(0.001)
  for thread in threads:
    thread.join(10)
  assert order == list(range(8))


def test_one_that_is_interrupted_while_it_waits_is_waited_for_by_nobody(
  monkeypatch,
):
  lock, taken = accelerator.FairLock(), []
  wait = lock._moved.wait_for

  def interrupted(condition):
    if threading.current_thread().name == 'left':
      raise KeyboardInterrupt
    return wait(condition)

  monkeypatch.setattr(lock._moved, 'wait_for', interrupted)

  def leave():
    with pytest.raises(KeyboardInterrupt):
      with lock:
        pass

  def take():
    with lock:
      taken.append(1)

  with lock:
    left = threading.Thread(target=leave, name='left')
    left.start()
    left.join(10)
    after = threading.Thread(target=take)
    after.start()
  after.join(10)
  assert taken == [1]


@pytest.mark.parametrize(
  'found',
  [(accelerator, 'is_cuda', True), (accelerator.jax, 'local_device_count', 4)],
)
def test_programs_that_could_meet_run_one_at_a_time_others_as_they_are(
  found, monkeypatch
):
  def plain(x):
    return x

  monkeypatch.setattr(accelerator.jax, 'local_device_count', lambda: 1)
  assert accelerator.in_turns(plain) is plain
  monkeypatch.setattr(*found[:2], lambda: found[2])
  running, most = [], []

  def program(x):
    running.append(x)
    most.append(len(running))
    time.sleep(0.002)
    running.remove(x)
    return x

  run = accelerator.in_turns(program)
  threads = [
    threading.Thread(target=lambda n=n: [run(n) for _ in range(5)])
    for n in range(4)
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(30)
  assert len(most) == 20 and max(most) == 1


@pytest.mark.parametrize(
  ('given', 'then'),
  [
    ('', '--xla_gpu_enable_command_buffer='),
    ('--xla_dump_to=', '--xla_dump_to= --xla_gpu_enable_command_buffer='),
    ('--xla_gpu_enable_command_buffer=FUSION',) * 2,
  ],
)
def test_main_leaves_cuda_graphs_to_programs_that_ask_for_them(given, then):
  text = 'import os, jaxagent.main; print(os.environ["XLA_FLAGS"])'
  found = subprocess.run(
    [sys.executable, '-c', text],
    env=os.environ | {'XLA_FLAGS': given},
    capture_output=True,
    text=True,
    check=True,
  )
  assert found.stdout.strip() == then
