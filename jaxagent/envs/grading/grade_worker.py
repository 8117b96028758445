"""The grading process: reads submissions strictly, scores them in forks.

Run by path with `python -P -s`, so it imports nothing of jaxagent and nothing
from the caller's folder or environment. (`competition_worker` is the same process
for tasks that `graders` grades.) Protocol on stdin and stdout: first a
JSON line {task: {eval, answers, sample, metric}}, for one of MLAgentBench's
{task: {eval, folder, submission}}; then, for each grade, a JSON
line {task, split, own_work, size, timeout_s} followed by `size` bytes; each is
answered by one JSON line {score, status, reason, passed} with status ok, invalid
or error; passed counts the checks before the one that failed (`grading.CHECKS`).
"""

from __future__ import annotations

import ast
import csv
import importlib.util
import io
import json
import math
import os
import resource
import select
import signal
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

LABEL_METRICS = ('accuracy', 'f1_macro')
PROBABILITY_METRICS = ('log_loss', 'roc_auc')
SUM_TOLERANCE = 0.01
MAX_WRITTEN = 64 * 1024 * 1024  # of a file, by a score that reads a folder
CHANGED = 1 / 20  # cells of a copy that may say something else
# In place of a split: all hidden rows, as the task's source scores them.
WHOLE = 'whole'
COPY = 'the submission is a copy of the sample submission.'


OWN, TEXT, TABLE, COLUMNS, IDS, VALUES = range(6)


class Refused(ValueError):
  """The submission breaks a rule; the message goes to the agent.

  check: the one that it failed; those before it were stood, but for OWN, which
    it takes more than a TABLE to tell.
  """

  def __init__(self, check: int, message: str):
    super().__init__(message)
    self.check = check


def canonical(label: str) -> str:
  """'3.0' and ' 3' name the class '3', '-0.0' the class '0'; others stay."""
  label = label.strip()
  head, dot, tail = label.partition('.')
  if dot and head.lstrip('-').isdigit() and not tail.strip('0'):
    label = head
  return '0' if label == '-0' else label


def _missing(path: str, folder: str) -> list[str]:
  """Packages that a file imports within its functions and that are not there.

  folder: where it looks for modules of its own. An import that may fail (in a
  `try`) is not counted.
  """
  with open(path, 'rb') as file:
    tree = ast.parse(file.read(), path)
  optional = {
    id(inner)
    for node in ast.walk(tree)
    if isinstance(node, ast.Try)
    for statement in node.body
    for inner in ast.walk(statement)
  }
  names = set()
  for node in ast.walk(tree):
    if id(node) in optional:
      continue
    if isinstance(node, ast.Import):
      names |= {alias.name.partition('.')[0] for alias in node.names}
    elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
      names.add(node.module.partition('.')[0])
  places = (folder, os.path.dirname(folder), os.path.join(folder, '../env'))
  return sorted(
    name
    for name in names
    if name not in sys.modules
    and not any(os.path.exists(os.path.join(p, name)) for p in places)
    and not any(os.path.exists(os.path.join(p, f'{name}.py')) for p in places)
    and importlib.util.find_spec(name) is None
  )


def _module(name: str, path: str):
  spec = importlib.util.spec_from_file_location(
    f'task_eval_{abs(hash(name))}', path
  )
  if spec is None or spec.loader is None:
    raise ImportError(f'{path} is no Python file.')
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


class FolderTask:
  """One of MLAgentBench's: its `get_score` reads a folder, in whatever way.

  Nothing is checked but that a finite number comes out.
  """

  writes = True

  def __init__(self, name: str, entry: dict):
    self.home, self.submission = entry['folder'], entry['submission']
    path, before = list(sys.path), set(sys.modules)
    os.chdir(self.home)  # what it imports is found relative to that
    self.module = _module(name, entry['eval'])
    if missing := _missing(entry['eval'], self.home):
      raise ModuleNotFoundError(name=missing[0])
    os.chdir('/')
    sys.path[:] = path
    # `train` of one task is not that of the next.
    for other in set(sys.modules) - before:
      found = getattr(sys.modules[other], '__file__', None) or ''
      if os.path.realpath(found).startswith(os.path.dirname(self.home) + '/'):
        del sys.modules[other]

  def score(self, data: bytes, split: str, own_work: bool) -> float:
    """The same for both splits; Refused where none comes out."""
    os.makedirs(os.path.dirname(self.submission) or '.', exist_ok=True)
    with open(self.submission, 'wb') as file:
      file.write(data)
    folder = os.getcwd()
    os.chdir(self.home)
    try:
      return float(self.module.get_score(folder))
    except Exception as error:
      # The kind alone: its text may quote the answers.
      raise Refused(
        TABLE, f'get_score ended with {type(error).__name__}.'
      ) from None


class Sample:
  """The sample submission's values, by which a refused copy of it is detected.

  A refused file is read as loosely as possible: a copy with an index column,
  missing rows or a few damaged cells counts as one. Cells that hold neither a
  number nor a class are ignored.

  Args:
    frame: the sample, as `Task.frame` gives it.
    order: its ids as they come in the file.
    truth: the answers, in the order of `frame`.
    labels: the names of the classes.
    id_column: the name of the column of ids.
  """

  def __init__(
    self,
    frame: Any,
    order: list[str],
    truth: Any,
    labels: set[str],
    id_column: str = 'id',
  ):
    self.values = {name: frame[name].to_dict() for name in frame}
    self.order, self.labels, self.cells = order, labels, frame.size
    self.id_column = id_column
    self.most = _most_changed(frame, truth)

  def is_own(self, data: bytes) -> bool | None:
    """False: a copy of the sample; None: too little to tell."""
    header, body = loose_table(data)
    by_id = _by_id(header, body, self.id_column)
    # Only what names its ids and columns can speak for itself: else a copy of
    # the training data would pass for predictions.
    if self._compare(by_id, self._named(header))[1] > self.most:
      return True
    columns = self._named(header) or self._last(header)
    # Without ids a copy is known by its order, with or without a header.
    for rows in (by_id, self._in_order(body), self._in_order([header, *body])):
      same, other = self._compare(rows, columns)
      if same and other * self.cells <= self.most * (same + other):
        return False
    return None

  def _named(self, header: list[str]) -> dict[str, int]:
    return {n: header.index(n) for n in self.values if n in header}

  def _last(self, header: list[str]) -> dict[str, int]:
    """Finds the sample's columns under other names: the last ones, if they fit.

    Not of a wide table: some feature may well be as constant as the sample.
    """
    before = len(header) - len(self.values)  # an id and an index, at most
    if not 0 <= before <= 2:
      return {}
    return dict(zip(self.values, range(before, len(header)), strict=True))

  def _in_order(self, body: Any) -> dict[str, list[str]]:
    return dict(zip(self.order, body, strict=False))

  def _compare(self, rows: Any, columns: dict[str, int]) -> tuple[int, int]:
    """Cells that say what the sample says, and those that say another thing."""
    said = [
      self._says(row[at], self.values[name][key])
      for name, at in columns.items()
      for key, row in rows.items()
      if key in self.values[name] and at < len(row)
    ]
    return said.count(True), said.count(False)

  def _says(self, cell: str, value: Any) -> bool | None:
    """Whether a cell says `value`; None where it says nothing."""
    number = _number(cell)
    if isinstance(value, str):
      label = canonical(cell)
      if label == value or (number is not None and number == _number(value)):
        return True
      return False if number is not None or label in self.labels else None
    if number is None:
      return None
    decimals = cell.strip().partition('.')[2]
    rounded = decimals.isdigit() and number == round(value, len(decimals))
    return rounded or math.isclose(number, value, rel_tol=1e-6, abs_tol=1e-12)


def _most_changed(frame: Any, truth: Any) -> float:
  """Returns how many cells of a whole copy may differ from the sample.

  At most half as many as differ in the answers: where nearly all rows are of
  the sample's class, a good model repeats it nearly everywhere.
  """
  names = [name for name in frame if name in truth]
  if not names:
    return frame.size * CHANGED
  differ = (frame[names].to_numpy() != truth[names].to_numpy()).sum()
  return min(frame.size * CHANGED, differ / 2)


def loose_table(data: bytes) -> tuple[list[str], list[list[str]]]:
  """Header and rows of whatever can be read as a table; nothing of the rest."""
  text = data.decode('utf-8-sig', 'replace').replace('\x00', '')
  # A comma at the end of a line is no column.
  lines = [line.rstrip(' ,;\t') for line in text.strip().splitlines()]
  separator = max(',;\t', key=lines[0].count) if lines else ','
  try:
    rows = [row for row in csv.reader(lines, delimiter=separator) if row]
  except csv.Error:
    rows = []
  header, body = (rows[0], rows[1:]) if rows else ([], [])
  # An index may have no name in the header, not even an empty one.
  unnamed = statistics.mode(map(len, body)) - len(header) if body else 0
  return [''] * unnamed + [name.strip() for name in header], body


def _by_id(
  header: list[str], body: Any, id_column: str
) -> dict[str, list[str]]:
  """Rows by what their column of ids holds, the first of each."""
  rows: dict[str, list[str]] = {}
  if id_column in header:
    at = header.index(id_column)
    for row in body:
      if at < len(row):
        rows.setdefault(canonical(row[at]), row)
  return rows


class Task:
  """Answers and rules of one task, read once."""

  writes = False

  def __init__(self, name: str, entry: dict):
    import pandas as pd

    self.module = _module(name, entry['eval'])
    if missing := _missing(entry['eval'], os.path.dirname(entry['eval'])):
      raise ModuleNotFoundError(name=missing[0])
    self.metric = entry['metric']
    text = {'dtype': str, 'keep_default_na': False}
    answers = pd.read_csv(entry['answers'], **text)
    sample = pd.read_csv(entry['sample'], nrows=0)
    self.columns = list(sample.columns)
    # In the form that a submission's are brought into.
    answers['id'] = answers['id'].map(canonical)
    self.ids = list(answers['id'])
    self.id_set = set(self.ids)
    if len(self.id_set) < len(self.ids):
      twice = answers['id'][answers['id'].duplicated()].iloc[0]
      raise ValueError(
        f'{entry["answers"]}: the id {twice!r} occurs twice (1 and 1.0 are one id)'
      )
    self.split = answers['split'].to_numpy()
    self.truth = answers.drop(columns=['split']).set_index('id')
    target = self.truth.columns[0]
    if self.metric in LABEL_METRICS or self.metric == 'log_loss':
      self.truth[target] = self.truth[target].map(canonical)
      self.labels = set(self.truth[target])
    else:
      self.truth = self.truth.astype(float)
      self.labels = set()
    cells = max(1, len(self.ids) * len(self.columns))
    self.max_bytes = 4096 + 64 * cells
    with open(entry['sample'], 'rb') as file:
      data = file.read()
    try:
      self.sample = self.frame(data)
    except Refused:  # no submission either, so nothing to compare with
      self.sample = self.said = None
    else:
      order = list(self.rows(data))
      self.said = Sample(self.sample, order, self.truth, self.labels)

  def rows(self, data: bytes) -> dict[str, list[str]]:
    """id -> values in the sample's column order. Raises Refused."""
    if len(data) > self.max_bytes:
      raise Refused(
        TEXT,
        f'submission has {len(data)} bytes; at most {self.max_bytes} allowed.',
      )
    try:
      text = data.decode('utf-8-sig')
    except UnicodeDecodeError as error:
      raise Refused(TEXT, f'submission is not UTF-8 text: {error}.') from None
    if '\x00' in text:
      raise Refused(TEXT, 'submission holds a NUL byte.')
    reader = csv.reader(io.StringIO(text, newline=''), strict=True)
    try:
      table = [row for row in reader if row]
    except csv.Error as error:
      raise Refused(TABLE, f'submission is not valid CSV: {error}.') from None
    if not table:
      raise Refused(TABLE, 'submission is empty.')
    return self.by_id(table[0], table[1:])

  def by_id(self, header: Any, body: Any) -> dict[str, list[str]]:
    header = [name.strip() for name in header]
    if len(set(header)) != len(header) or set(header) != set(self.columns):
      raise Refused(
        COLUMNS,
        f'columns are {_short(header)}; exactly {self.columns} are expected.',
      )
    order = [header.index(name) for name in self.columns if name != 'id']
    at = header.index('id')
    out: dict[str, list[str]] = {}
    for number, row in enumerate(body, start=2):
      if len(row) != len(header):
        raise Refused(
          IDS, f'line {number} has {len(row)} values; {len(header)} expected.'
        )
      key = canonical(row[at])
      if key in out:
        raise Refused(IDS, f'id {_short(key)} appears more than once.')
      if key not in self.id_set:
        raise Refused(IDS, f'id {_short(key)} is not a test id.')
      out[key] = [row[i] for i in order]
    missing = len(self.id_set) - len(out)
    if missing:
      raise Refused(
        IDS, f'{missing} of {len(self.id_set)} test ids are missing.'
      )
    return out

  def frame(self, data: bytes):
    """Checked submission, indexed and ordered like the answers."""
    import pandas as pd

    rows = self.rows(data)
    names = [name for name in self.columns if name != 'id']
    frame = pd.DataFrame(
      [rows[key] for key in self.ids], columns=names, index=self.ids
    )
    if self.metric in LABEL_METRICS:
      for name in names:
        frame[name] = frame[name].map(canonical)
        odd = sorted(set(frame[name]) - self.labels)
        if odd:
          raise Refused(
            VALUES,
            f'column {name} holds {_short(odd[0])}, which is no known class.',
          )
      return frame
    for name in names:
      frame[name] = [_finite(name, value) for value in frame[name]]
    if self.metric in PROBABILITY_METRICS:
      _check_probabilities(frame, self.metric)
    if self.metric == 'log_loss':
      # To the last digit: a score by plain logarithms would pay for a larger sum.
      frame = frame.div(frame.sum(axis=1), axis=0)
    return frame

  def score(self, data: bytes, split: str, own_work: bool) -> float:
    """Metric of one split. Raises Refused for the submission's faults."""
    try:
      frame = self.frame(data)
    except Refused as error:
      raise (self.refusal(data, error) if own_work else error) from None
    if own_work and self.sample is not None and frame.equals(self.sample):
      raise Refused(OWN, COPY)
    keep = self.split == split
    if not keep.any():
      raise ValueError(f'answers.csv has no row of split {split!r}.')
    return float(self.module.score(frame[keep], self.truth[keep]))

  def refusal(self, data: bytes, error: Refused) -> Refused:
    """`error`, with no check past TABLE stood unless it is no copy for sure."""
    said = self.said if len(data) <= self.max_bytes else None
    return refusal(said, data, error)


def refusal(sample: Sample | None, data: bytes, error: Refused) -> Refused:
  """`error`, with no check past TABLE stood unless it is no copy of the sample."""
  own = None if sample is None else sample.is_own(data)
  if own:
    return error
  if own is None:
    return Refused(min(error.check, TABLE), str(error))
  return Refused(OWN, f'{COPY} Also, {error}')


def _short(value: Any) -> str:
  text = repr(value)
  return text if len(text) <= 120 else text[:117] + '...'


def _finite(name: str, text: str) -> float:
  try:
    if '_' in text:  # Python alone reads 1_0 as a number
      raise ValueError
    value = float(text)
  except ValueError:
    raise Refused(
      VALUES, f'column {name} holds {_short(text)}, which is no number.'
    ) from None
  if not math.isfinite(value) or abs(value) > 1e100:
    raise Refused(
      VALUES, f'column {name} holds {_short(text)}; it must be finite.'
    )
  return value


def _number(text: str) -> float | None:
  try:
    return _finite('', text)
  except Refused:
    return None


def _check_probabilities(frame: Any, metric: str) -> None:
  values = frame.to_numpy(float)
  if values.min() < 0.0 or values.max() > 1.0:
    raise Refused(VALUES, 'probabilities must lie between 0 and 1.')
  if metric == 'log_loss':
    off = abs(values.sum(axis=1) - 1.0).max()
    if off > SUM_TOLERANCE:
      raise Refused(
        VALUES,
        'the probabilities of each row must sum to 1; one row is off by '
        f'{off:.3g}.',
      )


def grade(task: Any, data: bytes, split: str, own_work: bool = False) -> dict:
  """One answer record."""
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')
      score = task.score(data, split, own_work)
  except Refused as error:
    return _answer('invalid', str(error), error.check)
  except Exception as error:  # a fault of the task, never of the agent
    reason = f'{type(error).__name__}: {error}'
    return _answer('error', reason[:500])
  if not math.isfinite(score):
    reason = f'the score is {score}, not a finite number.'
    return _answer('invalid', reason, VALUES)
  return {**_answer('ok', '', VALUES + 1), 'score': score}


def _answer(status: str, reason: str, passed: int = 0) -> dict:
  return {'score': None, 'status': status, 'reason': reason, 'passed': passed}


def _child(task: Any, data: bytes, request: dict, out: int, folder: str):
  """Runs in the fork, in a folder of its own; never returns."""
  code = 1
  try:
    os.chdir(folder)
    seconds = max(1, math.ceil(request['timeout_s']))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    most = MAX_WRITTEN if task.writes else 0
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    found = grade(task, data, request['split'], request['own_work'])
    os.write(out, json.dumps(found).encode())
    code = 0
  finally:
    os._exit(code)


def grade_in_fork(task: Any, data: bytes, request: dict) -> dict:
  """Forks, waits at most timeout_s, kills what is late."""
  if not task.writes:
    return _grade_in_fork(task, data, request, '/')
  with tempfile.TemporaryDirectory() as folder:
    return _grade_in_fork(task, data, request, folder)


def _grade_in_fork(task: Any, data: bytes, request: dict, folder: str) -> dict:
  timeout_s = request['timeout_s']
  read, write = os.pipe()
  pid = os.fork()
  if pid == 0:
    os.close(read)
    _child(task, data, request, write, folder)
  os.close(write)
  chunks, end = [], time.monotonic() + timeout_s
  late = False
  while True:
    left = end - time.monotonic()
    if left <= 0 or not select.select([read], [], [], left)[0]:
      late = True
      os.kill(pid, signal.SIGKILL)
      break
    chunk = os.read(read, 65536)
    if not chunk:
      break
    chunks.append(chunk)
  os.close(read)
  _, status = os.waitpid(pid, 0)
  if late:
    reason = f'grading took longer than {timeout_s:g} s.'
  elif status != 0 or not chunks:
    reason = f'the grading process ended with status {status}.'
  else:
    return json.loads(b''.join(chunks))
  return _answer('error', reason)


def _load(name: str, entry: dict) -> FolderTask | Task:
  """One task; RuntimeError, a line that names it, where it cannot be read."""
  try:
    return (FolderTask if 'folder' in entry else Task)(name, entry)
  except ModuleNotFoundError as error:
    why = (
      f'it imports {error.name!r}, which is not installed here; install the package '
      'beside jaxagent'
    )
  except BaseException as error:  # a script may well call sys.exit
    why = ' '.join(f'{type(error).__name__}: {error}'.split())[:500]
  raise RuntimeError(f'task {name}: {entry["eval"]} cannot grade: {why}.')


def serve(load: Callable[[str, dict], Any]) -> None:
  """Loads the tasks that standard input names and grades until it ends.

  load: makes a task of its name and entry; RuntimeError says why it cannot.
  """
  # What an eval.py prints is no answer, when it is read as little as later.
  stdin, stdout = sys.stdin.buffer, os.fdopen(os.dup(1), 'wb')
  os.dup2(2, 1)
  limit = int(sys.argv[1]) * 1024 * 1024
  resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
  try:
    import pandas  # noqa: F401
    import sklearn.metrics  # noqa: F401

    entries = json.loads(stdin.readline())
    tasks = {name: load(name, entry) for name, entry in entries.items()}
    hello = {'status': 'ok', 'reason': ''}
  except RuntimeError as error:
    tasks, hello = {}, {'status': 'error', 'reason': str(error)}
  except Exception as error:
    tasks, hello = {}, {'status': 'error', 'reason': f'{error!r}.'}
  stdout.write(json.dumps(hello).encode() + b'\n')
  stdout.flush()
  while line := stdin.readline():
    request = json.loads(line)
    data = stdin.read(request['size'])
    answer = grade_in_fork(tasks[request['task']], data, request)
    stdout.write(json.dumps(answer).encode() + b'\n')
    stdout.flush()


if __name__ == '__main__':
  serve(_load)
