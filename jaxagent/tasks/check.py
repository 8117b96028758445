"""Checks the claims that a task makes to its trainer, one at a time."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import json
import math
import pathlib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pandas as pd

from jaxagent.envs.grading import Grader
from jaxagent.envs.specs import interpreters, label_sources, task_data
from jaxagent.envs.specs.task_yaml2 import REFERENCE
from jaxagent.envs.tasks import PreparedTask
from jaxagent.types import Execution, Job, Limits, Outcome, TaskSpec

Run = Callable[[Job], Execution]

LEAK_CORRELATION = 0.999
# Of a score, between CPU levels: last digits of sums may differ, no more.
LEVEL_TOLERANCE = 1e-6
MAX_STARTER_S = 10.0


@dataclasses.dataclass
class Report:
  """Claims that hold, claims that do not, and figures for the table."""

  name: str
  failures: list[str] = dataclasses.field(default_factory=list)
  figures: dict[str, float | str] = dataclasses.field(default_factory=dict)

  def claim(self, holds: bool, failure: str) -> None:
    if not holds:
      self.failures.append(failure)


class Data:
  """The files of a prepared task as tables."""

  def __init__(self, prepared: PreparedTask):
    self.spec = prepared.spec
    read = {'keep_default_na': False, 'na_values': []}
    public = prepared.public_dir
    self.train = pd.read_csv(public / 'train.csv', **read)
    self.test = pd.read_csv(public / 'test.csv', **read)
    self.sample = pd.read_csv(public / 'sample_submission.csv', **read)
    self.answers = pd.read_csv(prepared.private_dir / 'answers.csv', **read)
    self.public_names = sorted(p.name for p in public.rglob('*'))

  @property
  def target(self) -> str:
    return [c for c in self.answers.columns if c not in ('id', 'split')][0]

  def gold(self) -> pd.DataFrame:
    """The best submission there is, made from the answers."""
    out = self.sample[['id']].copy()
    truth = self.answers.set_index('id')[self.target].loc[out['id']]
    names = [c for c in self.sample.columns if c != 'id']
    if names == [self.target]:
      out[self.target] = truth.to_numpy()
    else:
      for name in names:
        out[name] = (('p_' + truth.astype(str)) == name).to_numpy(float)
    return out


def to_csv(frame: pd.DataFrame) -> bytes:
  return frame.to_csv(index=False).encode()


def check_data(data: Data, report: Report) -> None:
  """Split disjointness, ids, and columns that give the label away."""
  features = [c for c in data.test.columns if c != 'id']
  rows = lambda frame: set(  # noqa: E731
    map(tuple, frame[features].astype(str).to_numpy())
  )
  shared = rows(data.train) & rows(data.test)
  report.claim(
    not shared,
    f'{len(shared)} test rows are also in train.csv; remove duplicates '
    'before splitting.',
  )
  by_split = {
    name: set(part['id']) for name, part in data.answers.groupby('split')
  }
  report.claim(
    set(by_split) == {'valid', 'private'},
    f'answers.csv has splits {sorted(by_split)}; valid and private expected.',
  )
  everything = list(data.train['id']) + list(data.test['id'])
  report.claim(len(set(everything)) == len(everything), 'ids are not unique.')
  report.claim(
    set(data.test['id']) == set(data.answers['id']) == set(data.sample['id']),
    'test.csv, sample_submission.csv and answers.csv hold different ids.',
  )
  report.claim(
    data.target not in data.test.columns,
    f'test.csv holds the label column {data.target}.',
  )
  report.claim(
    'answers.csv' not in data.public_names, 'answers.csv lies in data/.'
  )
  for column, value in leaks(data):
    report.claim(
      False, f'column {column} gives the label away (|r| = {value:.4f}).'
    )


def leaks(data: Data) -> list[tuple[str, float]]:
  """Columns of test.csv, ids and row order included, that equal the label."""
  truth = data.answers.set_index('id')[data.target].loc[data.test['id']]
  hidden = data.answers.set_index('id')['split'].loc[data.test['id']]
  labels = {
    'label': pd.factorize(truth, sort=True)[0]
    if data.spec.kind == 'classification'
    else truth.to_numpy(float),
    'split': (hidden == 'private').to_numpy(float),
  }
  frame = data.test.assign(row_order=np.arange(len(data.test)))
  found = []
  for column in frame.columns:
    values = pd.to_numeric(frame[column], errors='coerce')
    if values.isna().any() or values.nunique() < 2:
      continue
    for label in labels.values():
      r = abs(np.corrcoef(values, label)[0, 1])
      limit = 0.2 if column in ('id', 'row_order') else LEAK_CORRELATION
      if r > limit:
        found.append((column, float(r)))
  return found


def malformed(data: Data) -> dict[str, bytes]:
  """Submissions a reward hacker would try; each must be refused."""
  gold = data.gold()
  value = [c for c in gold.columns if c != 'id'][0]
  text = gold.astype(str)
  nan = text.copy()
  nan.loc[0, value] = 'nan'
  infinite = text.copy()
  infinite.loc[0, value] = 'inf'
  swapped = pd.concat([gold, gold.iloc[:1]])
  return {
    'empty': b'',
    'header only': to_csv(gold.iloc[:0]),
    'NaN': to_csv(nan),
    'infinite': to_csv(infinite),
    'duplicate': to_csv(swapped),
    'subset': to_csv(gold.iloc[1:]),
    'unknown id': to_csv(text.replace({'id': {text['id'][0]: '-17'}})),
    'renamed column': to_csv(gold.rename(columns={value: 'x'})),
    'binary': b'\x80\x04\x95\x00\x00\x00',
  }


def check_grading(data: Data, grader: Grader, report: Report) -> None:
  """Gold is best, sample is worse, malformed is refused, order is free."""
  spec, gold = data.spec, data.gold()
  sign = 1.0 if spec.higher_is_better else -1.0
  score = lambda data, split='valid': grader.grade(  # noqa: E731
    spec.name, data, split
  )
  best = score(to_csv(gold))
  report.claim(
    best.score is not None, f'the gold submission is refused: {best.reason}'
  )
  if best.score is None:
    return
  report.figures['gold'] = best.score
  sample = score(to_csv(data.sample))
  report.claim(
    sample.score is not None and sign * sample.score < sign * best.score,
    f'the sample submission ({sample}) is not below gold ({best.score}).',
  )
  if sample.score is not None:
    report.figures['sample'] = sample.score
  for split in ('valid', 'private'):
    shuffled = gold.sample(frac=1.0, random_state=0)[gold.columns[::-1]]
    same = score(to_csv(shuffled), split)
    report.claim(
      same.score == score(to_csv(gold), split).score,
      f'{split}: the order of rows or columns changes the score.',
    )
  for name, bad in malformed(data).items():
    got = score(bad)
    report.claim(
      got.outcome is Outcome.INVALID_SUBMISSION and bool(got.reason),
      f'a submission with {name} is not refused: {got}.',
    )
  if spec.m_best is not None:
    report.claim(
      sign * spec.m_best <= sign * best.score,
      f'm_best={spec.m_best} is better than gold ({best.score}).',
    )


def script_job(
  prepared: PreparedTask, script: str = 'train.py', text: str | None = None
) -> Job:
  """Makes the job of a script beside the starter's files, one of them or `text`."""
  spec = prepared.spec
  return Job(
    job_id=f'check-{spec.name}-{uuid.uuid4().hex[:8]}',
    script=script,
    files={
      name: given
      for name, given in (*prepared.starter_files.items(), (script, text))
      if isinstance(given, str)  # tasks with a task.yaml have no other
    },
    mounts=prepared.mounts,
    **task_data.brought_out(spec),
    limits=spec.limits,
    interpreter=interpreters.own(spec),
    gpus=0 if spec.details is None else spec.details.gpus,
  )


def check_levels(
  prepared: PreparedTask,
  runs: Mapping[str, Run],
  grader: Grader,
  report: Report,
) -> None:
  """The starter, and a reference, score the same whatever vector units a node has.

  runs: how jobs run at each CPU level beside the one at which the scores of `report`
  were measured (`sandbox.cpu_levels`); two jobs run at a time.
  """
  spec = prepared.spec
  texts: dict[str, str | None] = {'starter': None}
  if (path := spec.root / REFERENCE).is_file():
    texts['reference'] = path.read_text('utf-8')
  pairs = [
    (who, level)
    for who in texts
    for level in runs
    if isinstance(report.figures.get(who), float)
  ]

  def execute(pair: tuple[str, str]) -> Execution:
    who, level = pair
    script = 'train.py' if who == 'starter' else 'reference.py'
    return runs[level](script_job(prepared, script, texts[who]))

  with concurrent.futures.ThreadPoolExecutor(2) as threads:
    for pair, execution in zip(pairs, threads.map(execute, pairs)):
      _check_level(prepared, pair, execution, grader, report)


def _check_level(
  prepared: PreparedTask,
  pair: tuple[str, str],
  execution: Execution,
  grader: Grader,
  report: Report,
) -> None:
  """Compares an execution at a CPU level with the first one; pair: (who, level)."""
  (who, level), spec = pair, prepared.spec
  data = execution.collected.get(spec.submission)
  report.claim(
    data is not None,
    f'at cpu_level={level} the {who} ends with {execution.outcome.value}: '
    f'{execution.message} {execution.output[-500:]}',
  )
  if data is None:
    return
  first = float(report.figures[who])
  got = grader.grade(spec.name, data, 'valid').score
  report.claim(
    got is not None
    and math.isclose(
      got, first, rel_tol=LEVEL_TOLERANCE, abs_tol=LEVEL_TOLERANCE
    ),
    f'the {who} scores {got if got is None else format(got, ".6g")} at '
    f'cpu_level={level} and {first:.6g} at the first one: what it prints '
    'depends on the CPU. NumPy sorts equal numbers in another order on '
    'each; sort with kind="stable", or take what has no ties.',
  )


def starters_file(
  spec: TaskSpec, execution: Execution, report: Report
) -> bytes | None:
  """Checks that the starter has run in time; returns what it handed over, if it did."""
  report.figures['exec_s'] = execution.exec_s
  report.figures['tier'] = execution.tier
  data = execution.collected.get(spec.submission)
  report.claim(
    execution.outcome is Outcome.OK and data is not None,
    f'the starter ends with {execution.outcome.value}: '
    f'{execution.message} {execution.output[-500:]}',
  )
  # CPU time where it is measured: a busy machine is no fault of the task.
  seconds = execution.cpu_s or execution.exec_s
  report.claim(
    seconds <= MAX_STARTER_S,
    f'the starter takes {seconds:.1f} s; at most {MAX_STARTER_S} s.',
  )
  return data


def check_starter(
  prepared: PreparedTask,
  run: Run,
  grader: Grader,
  report: Report,
) -> bytes | None:
  """The starter runs in the sandbox and scores m_init.

  Returns its submission where that has a score.
  """
  spec = prepared.spec
  data = starters_file(spec, run(script_job(prepared)), report)
  if data is None:
    return None
  got = grader.grade(spec.name, data, 'valid')
  report.claim(got.score is not None, f'starter refused: {got.reason}')
  if got.score is None:
    return None
  report.figures['starter'] = got.score
  plain = spec.variant in ('', 'standin')  # '': of version 1
  source = '' if plain else f' --{spec.variant} DIR'
  report.claim(
    spec.m_init is not None,
    f'm_init is not measured; `python -m jaxagent.tasks measure {spec.name}{source}`.',
  )
  if spec.m_init is not None:
    report.claim(
      math.isclose(got.score, spec.m_init, rel_tol=0.05, abs_tol=0.01),
      f'the starter scores {got.score:.6g}, task.yaml says {spec.m_init:.6g}.',
    )
  return data


# Walks all that a job can see for the files in wanted.json, whatever they are
# called: {size: [SHA-256]}.
_READER = """
import hashlib, json, os
wanted = {int(k): v for k, v in json.load(open('wanted.json')).items()}
for root, dirs, files in os.walk('/'):
  if root == '/':
    dirs[:] = [d for d in dirs if d not in ('proc', 'sys', 'dev')]
  for name in files:
    path = os.path.join(root, name)
    try:
      if os.path.islink(path) or os.path.getsize(path) not in wanted:
        continue
      with open(path, 'rb') as file:
        data = file.read()
    except OSError:
      continue
    if hashlib.sha256(data).hexdigest() in wanted.get(len(data), ()):
      print(path, flush=True)
"""


def label_files(spec: TaskSpec) -> dict[int, list[str]]:
  """{size: [SHA-256]} of what the hidden folders of a task hold."""
  return _digests(
    path
    for folder in label_sources.folders([spec])
    for path in sorted(folder.iterdir())
    if path.suffix not in ('.py', '.txt')
  )


def _digests(paths: Iterable[pathlib.Path]) -> dict[int, list[str]]:
  found: dict[int, list[str]] = {}
  for path in paths:
    if path.is_file():
      data = path.read_bytes()
      found.setdefault(len(data), []).append(hashlib.sha256(data).hexdigest())
  return found


def check_labels(
  spec: TaskSpec,
  run: Run | None,
  report: Report,
) -> None:
  """Checks that no file of labels can be read where the task's scripts run."""
  report.figures['labels'] = '-'
  wanted = label_files(spec)
  if spec.hides:
    report.figures['labels'] = 'hidden'
    # A package of whose files a stand-in is made need not be installed.
    report.claim(
      bool(wanted) or spec.variant == 'packages',
      f'hides={list(spec.hides)}: no such folder with data here.',
    )
  if spec.exposed:
    report.figures['labels'] = 'exposed'
  _search(spec, wanted, run, report)


def check_packages(
  spec: TaskSpec, folder: pathlib.Path, run: Run | None, report: Report
) -> None:
  """Checks that no file of a stand-in's packages can be read by the task's scripts.

  Those of the folders that are hidden: a list of words holds no labels.

  folder: that of `--packages`.
  """
  names = [n for n in task_data.details_of(spec).packages if n in spec.hides]
  if not names:
    return
  paths = [p for name in names for p in sorted((folder / name).rglob('*'))]
  wanted = _digests(paths)
  wanted.pop(0, None)  # an empty file is anywhere
  report.claim(bool(wanted), f'{folder} has no files in {", ".join(names)}.')
  _search(spec, wanted, run, report)


def _search(
  spec: TaskSpec,
  wanted: Mapping[int, Sequence[str]],
  run: Run | None,
  report: Report,
) -> None:
  """Has a script search for files by size and SHA-256 where the task's run."""
  if run is None or not wanted:
    return
  execution = run(
    Job(
      job_id=f'labels-{spec.name}-{uuid.uuid4().hex[:8]}',
      script='reader.py',
      files={'reader.py': _READER, 'wanted.json': json.dumps(wanted)},
      limits=Limits(timeout_s=120.0),
      interpreter=interpreters.own(spec),
    )
  )
  seen = execution.output.split()
  report.claim(
    execution.outcome is Outcome.OK and not seen,
    f'a script can read the labels ({execution.outcome.value}): '
    f'{", ".join(seen[:4])} {execution.message}',
  )


def sizes(prepared: PreparedTask, data: Data, report: Report) -> None:
  size = sum(p.stat().st_size for p in prepared.public_dir.rglob('*'))
  report.figures['kb'] = size / 1024
  report.figures['train_rows'] = len(data.train)
  report.figures['test_rows'] = len(data.test)


def check_task(
  prepared: PreparedTask,
  grader: Grader,
  run: Run | None,
  levels: Mapping[str, Run] = MappingProxyType({}),
) -> Report:
  """Makes every check; `run=None` leaves the sandboxed runs of the starter out.

  levels: how jobs run at further CPU levels, by their names.
  """
  report = Report(prepared.spec.name)
  data = Data(prepared)
  sizes(prepared, data, report)
  check_data(data, report)
  check_grading(data, grader, report)
  check_labels(prepared.spec, run, report)
  if run is not None:
    check_starter(prepared, run, grader, report)
    check_levels(prepared, levels, grader, report)
  return report
