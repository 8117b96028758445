"""Signals that stop a run: where it waits, where it computes, twice."""

import signal
import subprocess
import sys
import time

import pytest

from jaxagent.errors import Interrupted
from jaxagent.runtime.stop import StopFlag

SCRIPT = """
import sys, threading, time
from jaxagent.errors import Interrupted
from jaxagent.runtime import stop
how = sys.argv[1]
flag = stop.StopFlag(0.5)
flag.install()
flag.saved = 'update 3 is saved'
threading.Thread(target=time.sleep, args=(600,)).start()  # joined at the exit
print('ready', flush=True)
if how == 'waits':
  try:
    while True:
      flag.check()
      time.sleep(0.01)
  except Interrupted as error:
    flag.restore()  # the run has ended, the process waits for its thread
    print(error, file=sys.stderr)
    sys.exit(143)
if how == 'saves':
  with flag.saving():
    time.sleep(2)
    print('whole', flush=True)
    time.sleep(600)
if how == 'computes':  # no handler of Python's runs meanwhile
  import ctypes
  ctypes.CDLL(None).usleep(600_000_000)
"""


def started(how: str) -> subprocess.Popen:
  process = subprocess.Popen(
    [sys.executable, '-c', SCRIPT, how],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  assert process.stdout.readline() == 'ready\n'
  return process


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize('how', ['waits', 'computes'])
def test_a_process_ends_in_time_and_says_what_is_saved(how, number):
  process, began = started(how), time.monotonic()
  process.send_signal(number)
  _, said = process.communicate(timeout=10)
  assert process.returncode == 143
  assert time.monotonic() - began < 3
  name = signal.Signals(number).name
  assert said.count(f'{name}: stopped; update 3 is saved. Rerun') == 1


def test_a_checkpoint_is_written_to_its_end_unless_a_second_signal_comes():
  process = started('saves')
  process.send_signal(signal.SIGTERM)
  process.send_signal(signal.SIGTERM)  # the same one, to a job and its process
  assert process.stdout.readline() == 'whole\n'
  process.send_signal(signal.SIGINT)
  process.communicate(timeout=5)
  assert process.returncode == 143


def test_an_error_of_another_thread_is_raised_where_the_run_waits():
  flag, told = StopFlag(within_s=None), []
  with flag.telling(lambda: told.append(1)):
    flag.fail(ValueError('the directory is gone'))
  with pytest.raises(ValueError, match='is gone'):
    flag.check()
  assert told == [1]


def test_a_flag_that_nobody_set_lets_the_run_go_on():
  flag = StopFlag()
  before = signal.getsignal(signal.SIGTERM)
  flag.install()
  flag.check('something')
  flag.restore()
  assert signal.getsignal(signal.SIGTERM) is before
  flag.signal = signal.SIGTERM
  with pytest.raises(Interrupted, match='SIGTERM: stopped; something'):
    flag.check()


def test_a_process_that_follows_hands_its_signal_on_and_does_not_end():
  flag, handed = StopFlag(within_s=None), []
  with flag.telling(lambda: handed.append(flag.signal)):
    flag.ask(signal.SIGTERM)
    flag.ask(signal.SIGINT)
  assert handed == [signal.SIGTERM]
