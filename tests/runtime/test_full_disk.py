"""A full disk: told in a line wherever it is met, never taken for a fault of
a work item. The whole job on a disk that fills up is in test_run.py."""

import asyncio
import errno
import gc
import logging
import pathlib
import struct
import time
import types as namespaces

import pytest
from tensorboardX.proto import event_pb2

from jaxagent import errors, main, metrics, types
from jaxagent.checkpoint import CheckpointError, CheckpointManager
from jaxagent.files import disk
from jaxagent.interactions import Execute
from jaxagent.recipes import pipeline, run
from jaxagent.rollout.journal import Journal
from jaxagent.rollout.requests import ExecutionRequest, GenerationResult, Key
from jaxagent.rollout.result_queue import JournalledQueue
from jaxagent.rollout.thread_executor import ThreadExecutor

FULL = OSError(errno.ENOSPC, 'No space left on device', '/data/run/x.json')


def _raise_full(*args, **kwargs):
  raise FULL


def test_is_full_reads_the_whole_chain():
  assert disk.is_full(FULL) and disk.where(FULL) == '/data/run/x.json'
  assert disk.is_full(OSError(errno.EDQUOT, 'Disk quota exceeded'))
  assert disk.is_full(ValueError('RESOURCE_EXHAUSTED: No space left on device'))
  try:
    try:
      _raise_full()
    except OSError as error:
      raise CheckpointError('could not be written') from error
  except CheckpointError as error:
    assert disk.is_full(error) and disk.where(error) == '/data/run/x.json'
  for other in (
    None,
    OSError(errno.EACCES, 'Permission denied'),
    RuntimeError('RESOURCE_EXHAUSTED: Out of memory'),
  ):
    assert not disk.is_full(other) and not disk.where(other)


@pytest.fixture
def config(monkeypatch):
  monkeypatch.setattr('jaxagent.config.settings.validate', lambda config: None)
  return namespaces.SimpleNamespace(work_dir='/data/run', dry_run=False)


def test_a_run_ends_in_a_sentence(monkeypatch, config):
  monkeypatch.setattr(pipeline, 'run', _raise_full)
  with pytest.raises(errors.DiskFull, match=r'/data/run/x\.json.*same command'):
    run.run(config)


def test_other_faults_are_not_renamed(monkeypatch, config):
  def refuse(config):
    raise OSError(errno.EACCES, 'Permission denied')

  monkeypatch.setattr(pipeline, 'run', refuse)
  with pytest.raises(PermissionError):
    run.run(config)


def test_the_exit_code_is_one_and_the_line_is_one(capsys):
  assert main._refuse(errors.DiskFull('no space\nleft'), code=1) == 1
  assert capsys.readouterr().err == 'error: no space left\n'


def test_the_metric_writer_raises_and_does_not_wait(tmp_path, monkeypatch):
  """More points than any queue of tensorboardX holds, and a disk that takes
  none of them."""
  points = dict.fromkeys(
    (n for n in metrics.METRICS if not n.endswith('/')), 1.0
  )
  writer = metrics.MetricWriter(tmp_path)
  began = time.monotonic()
  with open('/dev/full', 'ab') as full:
    writer._board._writer._py_recordio_writer._writer = full
    with pytest.raises(OSError, match='No space left') as raised:
      for step in range(3):
        writer.write(step, points)
    assert disk.is_full(raised.value)
    with pytest.raises(OSError, match='No space left'):
      full.close()
  assert time.monotonic() - began < 10


def test_the_event_file_holds_what_was_logged(tmp_path):
  with metrics.MetricWriter(tmp_path, resume_step=2) as writer:
    writer.write(2, {'actor/lr': 0.5, 'actor/entropy': 2.0})
  (file,) = tmp_path.glob('events.out.tfevents.*')
  events = _events(file)
  assert events[0].file_version == 'brain.Event:2'
  assert events[1].step == 2  # earlier points from here on are superseded
  assert events[1].session_log.status == event_pb2.SessionLog.START
  points = {
    v.tag: (e.step, v.simple_value) for e in events for v in e.summary.value
  }
  assert points == {'actor/lr': (2, 0.5), 'actor/entropy': (2, 2.0)}
  assert all(abs(e.wall_time - time.time()) < 60 for e in events)


def _events(file: pathlib.Path) -> list[event_pb2.Event]:
  """TFRecords: length (8 bytes), its CRC (4), the event, its CRC (4)."""
  data, events = file.read_bytes(), []
  while data:
    (n,) = struct.unpack('<Q', data[:8])
    events.append(event_pb2.Event.FromString(data[12 : 12 + n]))
    data = data[16 + n :]
  return events


def test_the_executor_raises_it_where_the_loop_waits():
  inbox = JournalledQueue()
  executor = ThreadExecutor(inbox, _raise_full, threads=1)
  prompt = types.Prompt('p', 'p', None)
  executor.submit(ExecutionRequest(Key('p', 1, 0), prompt, Execute(0, None)))
  with pytest.raises(OSError, match='No space left'):
    inbox.take(10.0)
  executor.close()


def test_a_result_that_cannot_be_journalled_ends_the_run(tmp_path, monkeypatch):
  journal = Journal(tmp_path)
  journal.begin()
  inbox = JournalledQueue(journal)
  monkeypatch.setattr('jaxagent.rollout.journal.os.write', _raise_full)
  inbox.put(GenerationResult(Key('p', 1, 0), None, 'no answer'))
  with pytest.raises(OSError, match='No space left'):
    inbox.take(10.0)
  journal.close()


def test_a_checkpoint_that_does_not_fit_leaves_no_rest(tmp_path, monkeypatch):
  manager = CheckpointManager(tmp_path)
  manager.save(1, {'a': [1.0]}, {'n': 1})
  monkeypatch.setattr('jaxagent.checkpoint._write_host', _raise_full)
  with pytest.raises(CheckpointError, match='No space left') as raised:
    manager.save(2, {'a': [2.0]}, {'n': 2})
  assert disk.is_full(raised.value)
  assert [p.name for p in tmp_path.iterdir()] == ['step_00000001']


def test_a_save_that_failed_says_nothing_more_later(tmp_path, caplog):
  """What asyncio collects of hundreds of writes that nobody awaits."""
  manager = CheckpointManager(tmp_path)

  async def refuse():
    futures = [asyncio.get_running_loop().create_future() for _ in range(9)]
    for future in futures:
      future.set_exception(ValueError('No space left on device'))
    futures.append(futures)  # a cycle: only the collector frees it
    await futures[0]

  manager._orbax = namespaces.SimpleNamespace(
    save=lambda *args: asyncio.run(refuse())
  )
  with pytest.raises(CheckpointError) as raised:
    manager.save(1, {'a': [1.0]})
  assert disk.is_full(raised.value)
  del raised
  gc.collect()
  assert 'never retrieved' not in caplog.text
  assert not logging.getLogger('asyncio').disabled
