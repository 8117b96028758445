"""The grading process of a task that `graders` grades, in mode `strict`.

What it computes is what `python -m jaxagent.grade` computes: both read a submission,
align it and score it by `graders.loaded.Loaded`. Run as a module, with the package
alone on its path; the protocol is `grade_worker`'s, an entry of a task is
{grader, answers, sample, suffix, max_bytes, id, targets}, without sample where it has
none.
"""

from __future__ import annotations

import math
import pathlib
from typing import Any

import numpy as np
import scipy.stats  # noqa: F401  read once, not in every fork

from jaxagent import graders
from jaxagent.envs.grading import grade_worker
from jaxagent.envs.grading.grade_worker import (
  COPY,
  OWN,
  TEXT,
  VALUES,
  Refused,
  Sample,
  canonical,
)
from jaxagent.graders.loaded import Loaded
from jaxagent.graders.tables import CHECKS, InvalidSubmission

# Cells of a sample up to which a refused submission is compared with it; of a larger
# one it is not told whether it is a copy, so nothing of it is credited.
MOST_COMPARED = 500_000
_REASON_CHARS = 500


class CompetitionTask:
  """Answers, grader and sample of one task, read once.

  Args:
    name: of the task.
    entry: see the module.
  """

  writes = False

  def __init__(self, name: str, entry: dict):
    self._entry = entry
    self.answers = self._answers('strict')
    self.suffix, self.max_bytes = entry['suffix'], entry['max_bytes']
    self.sample: Any = None
    self.said: Sample | None = None
    self.comparable = 0
    if 'sample' not in entry:
      return
    path = pathlib.Path(entry['sample'])
    data = path.read_bytes()
    try:
      self.sample = self._aligned(data, path.suffix.lower())
    except Refused:
      return  # no submission either, so nothing to compare with
    if self.suffix == '.csv' and self.sample.size <= MOST_COMPARED:
      self.said = self._said(data)
      # As in version 1: a far larger file is no copy, and is not searched for one.
      self.comparable = 4096 + 4 * len(data) + 64 * self.sample.size

  def _answers(self, mode: str) -> Loaded:
    entry = self._entry
    scope = graders.Scope(
      id_column=entry['id'], targets=tuple(entry['targets'])
    )
    return graders.load(entry['grader'], entry['answers'], mode, scope)

  def score(self, data: bytes, split: str, own_work: bool) -> float:
    """Metric of one split. Raises Refused for the submission's faults."""
    if split == grade_worker.WHOLE:
      return self._whole(data)
    self.answers.rows(split)  # a fault of the task, not of the submission
    try:
      aligned = self._aligned(data)
    except Refused as error:
      if own_work:
        said = self.said if len(data) <= self.comparable else None
        raise grade_worker.refusal(said, data, error) from None
      raise
    if own_work and self._is_sample(aligned):
      raise Refused(OWN, COPY)
    try:
      return self.answers.score(aligned, split)
    except InvalidSubmission as error:
      raise _refused(error) from None

  def _whole(self, data: bytes) -> float:
    """The source's own number: of all hidden rows, as the source computes it.

    Raises Refused where a half would, or where the source gives no number.
    """
    aligned = self._aligned(data)
    mode = graders.source_mode(self._entry['grader'], self.suffix)
    try:
      if mode == 'strict':
        return self.answers.score(aligned)
      source = self._answers(mode)
      given = source.read(data, self.suffix, self.max_bytes)
    except InvalidSubmission as error:
      raise _refused(error) from None
    grade = source.grade(given)
    if grade.score is None or not math.isfinite(grade.score):
      why = grade.reason or f'the source gives {grade.score}'
      raise Refused(VALUES, ' '.join(why.split())[:_REASON_CHARS])
    return grade.score

  def _aligned(self, data: bytes, suffix: str = '') -> Any:
    if len(data) > self.max_bytes:
      raise Refused(
        TEXT,
        f'submission has {len(data)} bytes; at most {self.max_bytes} allowed.',
      )
    try:
      given = self.answers.read(data, suffix or self.suffix, self.max_bytes)
      return self.answers.aligned(given)
    except InvalidSubmission as error:
      raise _refused(error) from None

  def _is_sample(self, aligned: Any) -> bool:
    if self.sample is None:
      return False
    if isinstance(aligned, dict):
      # Its single array may have another name, or another number of columns.
      pairs = zip(aligned.values(), self.sample.values(), strict=True)
      return all(np.array_equal(mine, theirs) for mine, theirs in pairs)
    return aligned.equals(self.sample)

  def _said(self, data: bytes) -> Sample | None:
    """The sample's cells by id; None where there are no ids or only texts."""
    answers = self.answers
    column, cells = answers.entry.id_column, answers.entry.cells
    if not column:
      return None
    names = list(answers.targets)
    ids = self.sample[column].astype(str).map(canonical)
    frame = self.sample[names].set_index(ids)
    known = [name for name in names if name in answers.truth]
    truth = answers.truth[known].set_index(ids)
    labels: set[str] = set()
    if cells == 'boolean':
      frame, truth = frame.astype(str), truth.astype(str)
      labels = {'True', 'False'}
    elif answers.entry.score.__module__ == 'jaxagent.graders.plain':
      if cells == 'text':
        frame, truth = frame.map(canonical), truth.astype(str).map(canonical)
        labels = set(truth.to_numpy().ravel())
    header, body = grade_worker.loose_table(data)
    at = header.index(column) if column in header else 0
    order = [canonical(row[at]) for row in body if at < len(row)]
    return Sample(frame, order, truth, labels, column)


def _refused(error: InvalidSubmission) -> Refused:
  reason = ' '.join(str(error).split())
  return Refused(TEXT + CHECKS.index(error.check), reason[:_REASON_CHARS])


def load(name: str, entry: dict) -> CompetitionTask:
  """Reads one task; RuntimeError, a line that names it, where it cannot be read."""
  try:
    return CompetitionTask(name, entry)
  except Exception as error:
    why = ' '.join(f'{type(error).__name__}: {error}'.split())[:_REASON_CHARS]
    raise RuntimeError(
      f'task {name}: {entry["answers"]} cannot be graded by: {why}; prepare the '
      'task again.'
    ) from error


if __name__ == '__main__':
  grade_worker.serve(load)
