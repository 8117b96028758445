"""Metric names, the writer's promises on resume, and progress lines."""

import io
import json
import pathlib
import re
import subprocess
import sys

import pytest

from jaxagent import metrics

ROOT = pathlib.Path(__file__).parents[2]


def test_docs_are_the_table():
  text = (ROOT / 'docs' / 'metrics.md').read_text()
  assert text == metrics.markdown(), (
    'run: python -m jaxagent.metrics > docs/metrics.md'
  )
  for name in metrics.METRICS:
    assert f'| `{name}` |' in text


def test_names_written_in_the_package_are_in_the_table():
  families = '|'.join(sorted({k.split('/')[0] for k in metrics.METRICS}))
  pattern = re.compile(rf"'((?:{families})/[a-z0-9_/]+)'")
  names = set()
  for path in (ROOT / 'jaxagent').rglob('*.py'):
    if path.name != 'metrics.py':
      names |= set(pattern.findall(path.read_text()))
  stems = {n for n in names if f'{n}/mean' in metrics.METRICS}
  metrics.check_names(n for n in names - stems if not n.endswith('/'))


def test_unknown_name_is_refused_with_a_hint(tmp_path):
  with metrics.MetricWriter(tmp_path) as writer:
    with pytest.raises(ValueError, match='did you mean actor/entropy'):
      writer.write(1, {'actor/entrpy': 1.0})
    with pytest.raises(ValueError, match='unknown metric'):
      writer.write(1, {'sandbox/outcome/': 1.0})
    with pytest.raises(ValueError, match='must be one number'):
      writer.write(1, {'actor/entropy': [1.0, 2.0]})
  assert metrics.read_records(writer.path) == []


def test_prefixes_admit_what_lies_beneath():
  metrics.check_names(['sandbox/outcome/ok', 'sandbox/outcome/timeout'])
  with pytest.raises(ValueError):
    metrics.check_names(['actor/new'])


def test_non_finite_values_leave_plain_json(tmp_path):
  with metrics.MetricWriter(tmp_path) as writer:
    writer.write(0, {'actor/entropy': float('nan'), 'actor/lr': 0.5})
  record = json.loads(writer.path.read_text())
  assert record['actor/entropy'] is None and record['actor/lr'] == 0.5
  assert list(tmp_path.glob('events.out.tfevents.*'))


def test_resume_doubles_nothing_and_removes_a_cut_line(tmp_path):
  with metrics.MetricWriter(tmp_path) as writer:
    for step in range(5):
      writer.write(step, {'actor/lr': step})
  with writer.path.open('a') as file:
    file.write('{"step": 5, "acto')  # killed while writing
  with metrics.MetricWriter(tmp_path, resume_step=3) as writer:
    writer.write(3, {'actor/lr': 30})
  records = metrics.read_records(writer.path)
  assert [(r['step'], r['actor/lr']) for r in records] == [
    (0, 0.0),
    (1, 1.0),
    (2, 2.0),
    (3, 30.0),
  ]


def test_a_new_run_puts_the_old_file_aside(tmp_path):
  for value in (1.0, 2.0):
    with metrics.MetricWriter(tmp_path) as writer:
      writer.write(0, {'actor/lr': value})
  aside = metrics.read_records(tmp_path / 'metrics.1.jsonl')
  assert aside[0]['actor/lr'] == 1.0
  assert metrics.read_records(writer.path)[0]['actor/lr'] == 2.0


def test_a_damaged_record_is_named(tmp_path):
  path = tmp_path / 'metrics.jsonl'
  path.write_text('{"step": 0}\nnonsense\n{"step": 2}\n')
  with pytest.raises(ValueError, match=r'metrics.jsonl:2 is not a metrics'):
    metrics.read_records(path)


def test_log_directory_that_cannot_be_made(tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(OSError, match='cannot make the log directory'):
    metrics.MetricWriter(tmp_path / 'file' / 'logs')


class _Clock:
  def __init__(self):
    self.now = 0.0

  def __call__(self):
    return self.now


def test_progress_prints_rate_limited_lines_with_time_left():
  out, clock = io.StringIO(), _Clock()
  with metrics.ProgressBar(
    'sft', 100, initial=20, every_s=5, stream=out, clock=clock
  ) as progress:
    for _ in range(40):
      clock.now += 1.0
      progress.update(1, loss=0.123456)
    assert progress.left_s() == pytest.approx(40.0)
  lines = out.getvalue().splitlines()
  assert len(lines) == 9  # at 1, 6, ..., 36 s and at the end
  assert lines[-1] == (
    '[sft] 60/100 (60 %), 0:40 elapsed, 0:40 left, loss=0.1235'
  )


def test_progress_without_a_total():
  out = io.StringIO()
  with metrics.ProgressBar('collect', None, stream=out) as progress:
    progress.update(3)
    assert progress.left_s() is None
  assert out.getvalue().startswith('[collect] 3, 0:00 elapsed')


def test_progress_bar_on_a_terminal():
  class Terminal(io.StringIO):
    def isatty(self):
      return True

  out = Terminal()
  with metrics.ProgressBar('rl', 4, stream=out) as progress:
    progress.update(4, reward='[red]0.5')  # markup is shown, not obeyed
  assert 'rl' in out.getvalue() and '4/4' in out.getvalue()


def _points(folder: pathlib.Path) -> list[tuple[int, str, float]]:
  """(step, name, value) of a folder's event files, in the order of a viewer."""
  from tensorboardX.proto import event_pb2

  found = []
  for file in sorted(folder.glob('events.out.tfevents.*')):
    data = file.read_bytes()
    while data:  # length, its checksum, the record, its checksum
      size = int.from_bytes(data[:8], 'little')
      event = event_pb2.Event.FromString(data[12 : 12 + size])
      found += [
        (event.step, v.tag, v.simple_value) for v in event.summary.value
      ]
      data = data[16 + size :]
  return found


def test_writers_of_one_second_keep_each_others_numbers(tmp_path, monkeypatch):
  """tensorboardX names a file by host and second, and empties what is there."""
  real = metrics.time.time
  monkeypatch.setattr(metrics.time, 'time', lambda: float(int(real())))
  for step in range(4):
    with metrics.MetricWriter(tmp_path, resume_step=step or None) as writer:
      writer.write(step, {'actor/entropy': step + 0.5})
  assert _points(tmp_path) == [(i, 'actor/entropy', i + 0.5) for i in range(4)]


def test_writing_event_files_does_not_load_pytorch(tmp_path):
  pytest.importorskip('torch')
  code = f"""
import sys
from jaxagent.metrics import MetricWriter
writer = MetricWriter({str(tmp_path)!r})
writer.write(0, {{'actor/pg_loss': 1.0}})
writer.close()
assert 'torch' not in sys.modules
import torch
print(torch.zeros(1).item())
"""
  done = subprocess.run(
    [sys.executable, '-c', code], capture_output=True, text=True, timeout=120
  )
  assert done.returncode == 0, done.stderr
  assert done.stdout == '0.0\n'
