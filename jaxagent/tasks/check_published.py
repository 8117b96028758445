"""Checks the claims of a task of version 2, whatever its grader reads."""

from __future__ import annotations

import csv
import hashlib
import io
import pathlib
import pickle
import stat
import zipfile
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from jaxagent.envs.grading import SPLITS, Grader
from jaxagent.envs.specs import task_data, task_yaml2
from jaxagent.envs.tasks import PreparedTask
from jaxagent.graders import folders, tables
from jaxagent.graders.loaded import Loaded
from jaxagent.tasks import check
from jaxagent.tasks.check import Report, Run
from jaxagent.tasks.measure import REFERENCE
from jaxagent.types import Outcome

# By how many standard errors the reference is better than the starter.
MARGIN = 3.0
_RESAMPLES = 100
# Column of the answers whose rows of one value a metric looks at together.
GROUP = 'Patient'
_MOST_READ = 64_000_000  # bytes of a public file that is searched for answers
_TEXTS = ('text', 'optional_text')


def load(prepared: PreparedTask) -> Loaded:
  """Reads the answers of a prepared task, with its grader."""
  return task_data.read_answers(prepared.spec, prepared.private_dir)


def check_sample(prepared: PreparedTask, answers: Loaded) -> None:
  """Raises ValueError for a sample submission without rows or columns."""
  spec = prepared.spec
  path = task_data.sample_file(spec, prepared.public_dir)
  if path is None or answers.entry.arrays:
    return
  try:
    given = answers.read(path, path.suffix)
  except tables.InvalidSubmission as error:
    raise ValueError(f'task {spec.name}: {error}') from error
  names = [n for n in answers.targets if n not in given.columns]
  if names or not len(given):
    raise ValueError(
      f'task {spec.name}: {path} has '
      + (f'no column {names[0]!r}.' if names else 'no rows.')
    )


def gold(answers: Loaded) -> Any:
  """Makes the submission that says what the answers say; None where none can.

  A table or arrays; of the largest of several columns, the label's is 1.
  """
  entry, truth = answers.entry, answers.truth
  if entry.arrays:
    return dict(truth) if entry.cells == 'pointer' else None
  targets = list(answers.targets)
  ids = truth[[entry.id_column]] if entry.id_column else truth[[]]
  if set(targets) <= set(truth.columns):
    values = truth[targets]
    return ids.join(values.fillna('' if entry.cells in _TEXTS else 0))
  if entry.truth and len(targets) == 1:
    return ids.assign(**{targets[0]: truth[entry.truth[0]]})
  if 'label' in truth.columns and len(targets) > 1:
    places = np.eye(len(targets))[truth['label'].to_numpy(int)]
    return ids.join(pd.DataFrame(places, columns=targets))
  return None


def as_bytes(given: Any, form: str) -> bytes:
  """Writes a submission as a file of its format; several files as a `.zip`."""
  if isinstance(given, dict):
    file = io.BytesIO()
    if form == 'npy':
      np.save(file, next(iter(given.values())))
    else:
      np.savez(file, **given)
    return file.getvalue()
  if form == 'jsonl':
    return given.to_json(orient='records', lines=True).encode()
  if form in task_yaml2.SEVERAL:
    half = len(given) // 2
    parts = given.iloc[:half], given.iloc[half:]
    return folders.zipped(
      {f'{k}.csv': as_bytes(part, 'csv') for k, part in enumerate(parts)}
    )
  return given.to_csv(index=False).encode()


def malformed(sample: bytes, form: str, answers: Loaded) -> dict[str, bytes]:
  """Submissions a reward hacker would try, made of the sample; each is refused."""
  out = {
    'nothing': b'',
    'bytes': b'\x80\x04\x95\x00\x00\x00',
    'a pickle': pickle.dumps({'id': [1]}),
  }
  if form in task_yaml2.SEVERAL:
    return out | _malformed_files(sample, answers)
  if form == 'jsonl':
    lines = sample.strip().split(b'\n')
    return {**out, 'subset': b'\n'.join(lines[1:])}
  if form != 'csv':
    return {**out, 'half a file': sample[: len(sample) // 2]}
  head, *rows = csv.reader(io.StringIO(sample.decode('utf-8-sig'), newline=''))
  entry = answers.entry
  target = head.index(answers.targets[0])
  first = list(rows[0])
  changed = {'renamed column': ([*head[:-1], head[-1] + '?'], rows)}
  changed['header only'] = head, []
  changed['subset'] = head, rows[1:]
  changed['duplicate'] = head, [*rows, rows[0]]
  if entry.id_column in head:
    at = head.index(entry.id_column)
    unknown = [*first[:at], 'no-such-row', *first[at + 1 :]]
    changed['unknown id'] = head, [unknown, *rows[1:]]
  if entry.cells not in _TEXTS:
    for name in ('NaN', 'inf'):
      wrong = [*first[:target], name, *first[target + 1 :]]
      changed[name] = head, [wrong, *rows[1:]]
  return {**out, **{name: _csv(*table) for name, table in changed.items()}}


def _malformed_files(sample: bytes, answers: Loaded) -> dict[str, bytes]:
  """Submissions of several files, each with a fault, made of the sample's first."""
  with zipfile.ZipFile(io.BytesIO(sample)) as archive:
    first, *rest = sorted(archive.namelist())
    files = {name: archive.read(name) for name in (first, *rest)}
  path = pathlib.PurePath(first)
  wrong = malformed(files[first], path.suffix[1:], answers)
  out = {
    f'{name} in {first}': folders.zipped({**files, first: data})
    for name, data in wrong.items()
  }
  link = zipfile.ZipInfo(f'link{path.suffix}')
  link.external_attr = (stat.S_IFLNK | 0o777) << 16
  out['a link'] = folders.zipped({**files, link: f'/{first}'.encode()})
  out['a folder within'] = folders.zipped({**files, f'a/{first}': b''})
  out['a pickle beside'] = folders.zipped({**files, 'a.pkl': pickle.dumps(1)})
  out['a table twice'] = folders.zipped({**files, f'z-{first}': files[first]})
  out['no file'] = folders.zipped({})
  out['half a zip'] = sample[: len(sample) // 2]
  return out


def _csv(head: list[str], rows: list[list[str]]) -> bytes:
  file = io.StringIO(newline='')
  csv.writer(file, lineterminator='\n').writerows([head, *rows])
  return file.getvalue().encode()


def check_hidden(
  prepared: PreparedTask, answers: Loaded, report: Report
) -> None:
  """No public file is the answers, or has a target beside the hidden ids."""
  truth = task_data.answers_file(prepared.spec, prepared.private_dir)
  digest = hashlib.sha256(truth.read_bytes()).digest()
  sample = task_data.sample_file(prepared.spec, prepared.public_dir)
  for path in sorted(prepared.public_dir.rglob('*')):
    if not path.is_file() or path == sample:
      continue
    if path.stat().st_size == truth.stat().st_size:
      same = hashlib.sha256(path.read_bytes()).digest() == digest
      report.claim(not same, f'data/{path.name} is the answers.')
    if path.suffix in ('.csv', '.jsonl') and not answers.entry.arrays:
      share = _told(path, answers)
      report.claim(
        share < 0.5,
        f'data/{path.name} has the answers of {share:.0%} of the hidden rows.',
      )


def _told(path: Any, answers: Loaded) -> float:
  """Returns the share of hidden rows whose targets a public table has."""
  entry, truth = answers.entry, answers.truth
  if path.stat().st_size > _MOST_READ or not entry.id_column:
    return 0.0
  try:
    table = tables.read_table(path, literal=True, texts=entry.text_columns)
  except tables.InvalidSubmission:
    return 0.0
  names = [
    n for n in truth.columns if n != entry.id_column and n in answers.targets
  ]
  if entry.id_column not in table or not set(names) & set(table.columns):
    return 0.0
  columns = [entry.id_column, *(n for n in names if n in table)]
  known = set(map(tuple, table[columns].astype(str).to_numpy()))
  rows = truth[columns].astype(str).to_numpy()
  return sum(tuple(row) in known for row in rows) / max(1, len(rows))


def check_grading(
  prepared: PreparedTask, answers: Loaded, grader: Grader, report: Report
) -> None:
  """Gold is best, malformed submissions are refused, both halves are graded."""
  spec, details = prepared.spec, task_data.details_of(prepared.spec)
  path = task_data.sample_file(spec, prepared.public_dir)
  sign = 1.0 if spec.higher_is_better else -1.0
  sample = task_data.sample_bytes(spec, path) if path is not None else b''
  report.figures['test_rows'] = len(answers.rows('valid'))
  score = grader.grade(spec.name, sample).score
  if score is not None:
    report.figures['sample'] = score
  best = gold(answers)
  if best is not None:
    data = as_bytes(best, details.submission_format)
    for split in SPLITS:
      got = grader.grade(spec.name, data, split)
      report.claim(
        got.score is not None, f'{split}: gold is refused: {got.reason}'
      )
      if got.score is None:
        continue
      if split == 'valid':
        report.figures['gold'] = got.score
      scores = [('the sample', score)] if split == 'valid' else []
      suffix = '' if split == 'valid' else '_private'
      scores.append((f'm_best{suffix}', getattr(spec, f'm_best{suffix}')))
      for name, other in scores:
        report.claim(
          other is None or sign * other <= sign * got.score,
          f'{split}: {name} ({other}) is better than gold ({got.score}).',
        )
  for name, data in malformed(
    sample, details.submission_format, answers
  ).items():
    got = grader.grade(spec.name, data)
    report.claim(
      got.outcome is Outcome.INVALID_SUBMISSION and bool(got.reason),
      f'a submission with {name} is not refused: {got}.',
    )


def resampled(
  rng: np.random.RandomState, rows: np.ndarray, groups: np.ndarray | None = None
) -> np.ndarray:
  """Draws rows as often as there are rows; of groups, half of the groups, once.

  Where a metric looks at a patient's rows together a row cannot stand twice. A mean
  over half of the groups, without replacement, varies as one over all of them does
  that are drawn anew: (2 / n - 1 / n) of the variance.

  groups: of each row, the group's name; None: rows stand alone.
  """
  if groups is None:
    return rng.choice(rows, len(rows))
  names = sorted(set(groups))
  half = rng.permutation(len(names))[: (len(names) + 1) // 2]
  return rows[np.isin(groups, [names[k] for k in half])]


def margin(
  answers: Loaded, split: str, starter: bytes, reference: bytes, suffix: str
) -> float:
  """Returns by how many standard errors the reference is better on a half.

  The error is that of the difference, from resampled rows or patients.
  """
  aligned = [
    answers.aligned(answers.read(data, suffix)) for data in (starter, reference)
  ]
  rows = np.flatnonzero(answers.rows(split))
  sign = 1.0 if answers.entry.higher_is_better else -1.0
  rng = np.random.RandomState(0)
  groups = None
  if GROUP in answers.truth:
    groups = answers.truth[GROUP].to_numpy()[rows].astype(str)

  def gain(chosen: np.ndarray) -> float:
    first, second = (answers.score_rows(a, chosen) for a in aligned)
    return sign * (second - first)

  gains = []
  for _ in range(_RESAMPLES):
    try:
      gains.append(gain(resampled(rng, rows, groups)))
    except ValueError:  # a class is missing among these rows
      continue
  spread = float(np.std(gains)) if len(gains) > 1 else 0.0
  return gain(rows) / spread if spread else 0.0


def check_reference(
  prepared: PreparedTask,
  starter: bytes,
  run: Run,
  grader: Grader,
  report: Report,
) -> None:
  """The reference solution beats the starter's submission on both halves."""
  path = prepared.spec.root / REFERENCE
  if not path.is_file():
    return
  execution = run(check.script_job(prepared, 'reference.py', path.read_text()))
  data = execution.collected.get(prepared.spec.submission)
  report.claim(
    data is not None,
    f'the reference ends with {execution.outcome.value}: {execution.message} '
    f'{execution.output[-500:]}',
  )
  if data is None:
    return
  got = grader.grade(prepared.spec.name, data)
  report.claim(got.score is not None, f'the reference is refused: {got.reason}')
  if got.score is None:
    return
  report.figures['reference'] = got.score
  answers = load(prepared)
  suffix = task_data.details_of(prepared.spec).suffix
  errors = [margin(answers, s, starter, data, suffix) for s in SPLITS]
  report.figures['se'] = min(errors)
  for split, error in zip(SPLITS, errors):
    report.claim(
      error >= MARGIN,
      f'{split}: the reference is better than the starter by {error:.1f} '
      f'standard errors; at least {MARGIN:g}.',
    )


def check_task(
  prepared: PreparedTask,
  grader: Grader,
  run: Run | None,
  levels: Mapping[str, Run] = MappingProxyType({}),
) -> Report:
  """Makes every check, as `check.check_task` does for version 1."""
  report = Report(prepared.spec.name)
  answers = load(prepared)
  check_sample(prepared, answers)
  size = sum(p.stat().st_size for p in prepared.public_dir.rglob('*'))
  report.figures['kb'] = size / 1024
  check_hidden(prepared, answers, report)
  check_grading(prepared, answers, grader, report)
  check.check_labels(prepared.spec, run, report)
  if run is not None:
    starter = check.check_starter(prepared, run, grader, report)
    if starter is not None:
      check_reference(prepared, starter, run, grader, report)
    check.check_levels(prepared, levels, grader, report)
    _check_sample(prepared, report)
  return report


def _check_sample(prepared: PreparedTask, report: Report) -> None:
  """The sample is not better than the starter."""
  sample, starter = (report.figures.get(k) for k in ('sample', 'starter'))
  if isinstance(sample, float) and isinstance(starter, float):
    sign = 1.0 if prepared.spec.higher_is_better else -1.0
    report.claim(
      sign * sample <= sign * starter,
      f'the sample ({sample}) is better than the starter ({starter}).',
    )
