"""Classes of failed runs: the categories of paper 002, section 4.2 and figure 5.

There people read the traces of CIFAR-10; here rules read typed outcomes,
scores and the text of plan and final answer. The first that takes a failed
run names it, the surest first. Each rule states what it cannot see.
No jax here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from jaxagent import traces
from jaxagent.analysis import benchmark_figures
from jaxagent.records import Trajectory
from jaxagent.records.trajectory import name_of
from jaxagent.types import Outcome, Record

SUCCESS = 'success'
RESPONSE_FORMAT_ERROR = 'response_format_error'
SUBMISSION_FORMAT_ERROR = 'submission_format_error'
HALLUCINATION = 'hallucination'
SMALL_IMPROVEMENT = 'small_improvement'
DEBUG = 'debug'
BAD_PLAN = 'bad_plan'
LABELS = (
  SUCCESS,
  RESPONSE_FORMAT_ERROR,
  SUBMISSION_FORMAT_ERROR,
  HALLUCINATION,
  SMALL_IMPROVEMENT,
  DEBUG,
  BAD_PLAN,
)
STUCK = 2  # failed executions at the end of a run that make it debugging
PLAN = 'Research Plan and Status'
_SUBMISSION = (Outcome.NO_SUBMISSION, Outcome.INVALID_SUBMISSION)

_METRIC = (
  'accuracy|acc|score|loss|error|rmse|rmsle|mae|mse|mape|smape|auc|auroc|'
  'f1|r2|precision|recall|perplexity|log ?loss'
)
# Bounded, so that no text makes the search slow or a number overflow.
_NUMBER = (
  r'(?<![\w.])-?\d{1,20}(?:\.\d{1,20})?(?:e[-+]?\d{1,2})?(?![\w.]{0,40}\w)'
)
_ANY_NUMBER = re.compile(r'-?\d+(?:\.\d+)?(?:e[-+]?\d+)?', re.I)
# A number right behind one of these is a difference or a setting.
_DIFFERENCE = re.compile(r'\b(by|after|within|top)\W*$', re.I)
# In the clause before the number: what is wished for, not what was had.
_WISH = re.compile(
  r'\b(goal|target|aim\w*|expect\w*|should|hope\w*|try|until|at least|if|'
  r'want|will|would|could|may|might|must|needs?|achieve|reach|get|improve|'
  r'exceed|increase|reduce|decrease|threshold|guess\w*|unknown)\b',
  re.I,
)
_COUNTED = re.compile(
  r'\s*(epochs?|steps?|layers?|folds?|runs?|trials?|models?|times|'
  r'iterations?|trees|samples|rows|seconds|minutes)\b',
  re.I,
)


def classify(
  trajectory: Trajectory,
  *,
  m_init: float,
  higher_is_better: bool,
  kind: str = 'final',
  metric: str = '',
  known_text: str = '',
) -> str:
  """One of LABELS for a trajectory.

  m_init: the starter's score on the split of `score_after`.
  kind: which score decides success, see `benchmark_figures.KINDS`.
  metric: the task's name of it, beside the usual ones.
  known_text: what else the policy was shown (the task's description).

  - success: `benchmark_figures.succeeded`, 10 % over the starter (2.3).
  - then the rules below, in the order of LABELS;
  - bad_plan: what is left, "fails to make a correct plan that brings direct
    progress" (4.2): nothing better than the starter came of it and no rule
    says why. The quality of a plan is not read.

  Raises ValueError for a trajectory without steps, one that an infrastructure
  error cut short (`missing`: no run of the policy's), and scores that are not finite.
  """
  if kind not in benchmark_figures.KINDS:
    raise ValueError(f'kind={kind!r}; use one of {benchmark_figures.KINDS}.')
  score = benchmark_figures.scores_of(trajectory, higher_is_better)[kind]
  steps = _checked(trajectory)
  if benchmark_figures.succeeded(score, m_init, higher_is_better):
    return SUCCESS
  if response_format_error(steps):
    return RESPONSE_FORMAT_ERROR
  if submission_format_error(steps):
    return SUBMISSION_FORMAT_ERROR
  if hallucinations(steps, metric, f'{float(m_init)} {known_text}'):
    return HALLUCINATION
  gain = benchmark_figures.improvement(score, m_init, higher_is_better)
  # "Minor improvement but it does not reach 10%" (4.2); a starter at 0 has
  # none, for there anything better is a success.
  if gain is not None and gain > 0:
    return SMALL_IMPROVEMENT
  return DEBUG if debug(steps) else BAD_PLAN


def shares(labels: Sequence[str]) -> dict[str, float]:
  """Share of each of LABELS (figure 5); ValueError for none or unknown."""
  unknown = sorted(set(labels) - set(LABELS))
  if unknown or not labels:
    raise ValueError(f'labels are {unknown or "empty"}; known: {LABELS}.')
  counts = Counter(labels)
  return {label: counts[label] / len(labels) for label in LABELS}


def response_format_error(steps: Sequence[Record]) -> bool:
  """The run ends with a response that does not parse, or most do not.

  4.2: "produces invalid JSON and cannot be parsed with our best effort"; the
  original's agent gives up then. Limit: one outcome stands for entries and
  for JSON, and a strict parser makes less effort than theirs.
  """
  bad = [s.outcome is Outcome.INVALID_FORMAT for s in steps]
  return bad[-1] or sum(bad) > len(bad) / 2


def submission_format_error(steps: Sequence[Record]) -> bool:
  """The last execution ran through, but what it left could not be graded.

  4.2: "changes the submission.csv format incorrectly that our evaluator
  cannot recognize". Limit: a file that was not written, or under another
  name, counts too; an earlier valid one does not help. What an undone edit left is
  not there any more.
  """
  kept = (s for s in reversed(steps) if traces.ran(s) and not s.undone)
  last = next(kept, None)
  return last is not None and last.outcome in _SUBMISSION


def debug(steps: Sequence[Record]) -> bool:
  """The last two executions or more failed by the script's own fault.

  Appendix D.1: "plans to carry out too complex an edit and becomes stuck with
  debugging". Limit: whether it is the same fault is not known, and an agent
  that only reflects does not show.
  """
  ended = [s for s in steps if traces.ran(s)][-STUCK:]
  faults = [
    s.outcome is Outcome.SCRIPT_ERROR or s.outcome.is_corner_case for s in ended
  ]
  return len(faults) == STUCK and all(faults)


def hallucinations(
  steps: Sequence[Record], metric: str = '', known_text: str = ''
) -> list[str]:
  """Claims of a metric's number that nothing seen before them held.

  4.2: "claims to know something or fabricates some results". Read are the
  entry Research Plan and Status and the argument of Final Answer. A number
  counts as seen where an earlier observation, a score or known_text holds
  one that agrees with it to its last digit, or as a percentage.

  Limits: a claim without a number or with one of another run; a number that
  happens to be printed for something else; wrong comparisons ("26.35%, which
  improves over 51.80%", D.2); averages that the agent took itself are taken
  for made up. Wishes ("target accuracy 0.9", "at least") and differences
  ("by 5%") are no claims.
  """
  seen = _numbers(known_text)
  found = []
  for step in steps:
    if step.score_before is not None:
      seen.add(float(step.score_before))
    _, args = traces.action_of(step)
    texts = (traces.entries_of(step).get(PLAN), args.get('final_answer'))
    for text in texts:
      for claim in dict.fromkeys(claims(str(text or ''), metric)):
        if not any(_agrees(claim, number) for number in seen):
          found.append(claim)
    seen |= _numbers(step.observation)
    if step.score_after is not None:
      seen.add(float(step.score_after))
  return found


def claims(text: str, metric: str = '') -> list[str]:
  """Numbers that a text gives for a metric, as written.

  'accuracy is 0.81', 'RMSE: 3.2', '81.5% test accuracy': at most 30
  characters without another number or the end of a clause lie between. Whole
  numbers without a percent sign only right behind 'of', 'is', '=' or ':'.

    claims('Baseline accuracy is 51.8%.') == ['51.8%']
  """
  names = _METRIC + (f'|{re.escape(metric)}' if metric else '')
  behind = re.compile(
    rf'\b(?:{names})\b(?P<gap>[^\d\n;.]{{0,30}}?)(?P<n>{_NUMBER} ?%?)', re.I
  )
  ahead = re.compile(
    rf'(?P<n>{_NUMBER} ?%?)(?P<gap> (?:\w+ )?)(?:{names})\b', re.I
  )
  found = {}
  for pattern in (behind, ahead):
    for match in pattern.finditer(text):
      start, end = match.span('n')
      number = match['n'].replace(' ', '')
      clause = re.split(r'[;\n]|\.\s', text[max(0, start - 200) : start])[-1]
      if _DIFFERENCE.search(clause) or _WISH.search(clause):
        continue
      if _COUNTED.match(text, end):
        continue
      direct = re.search(r'(\b(of|is|was)|[=:])\s*$', match['gap'], re.I)
      if re.fullmatch(r'-?\d+', number) and not direct:
        continue
      found[start] = number
  return [found[start] for start in sorted(found)]


def _checked(trajectory: Trajectory) -> Sequence[Record]:
  name = name_of(trajectory)
  if not trajectory.steps:
    raise ValueError(
      f'{name} has no steps, so no failure mode can be found; leave it out.'
    )
  found = [step.record for step in trajectory.steps]
  for index, record in enumerate(found):
    if record.score_before is not None:
      where = f'{name}: steps[{index}].score_before'
      benchmark_figures.finite(record.score_before, where)
  return found


def _numbers(text: str) -> set[float]:
  return {float(n) for n in _ANY_NUMBER.findall(text)}


def _agrees(claim: str, number: float) -> bool:
  """Equal to the claim's last digit, rounded or cut; percentages, too."""
  digits = claim.rstrip('%')
  value = float(digits)
  fraction = re.search(r'\.(\d+)', digits)
  exponent = re.search(r'e([-+]?\d+)', digits, re.I)
  places = len(fraction[1]) if fraction else 0
  unit = 10.0 ** (int(exponent[1] if exponent else 0) - places)
  sign = -1.0 if value < 0 else 1.0
  scales = (1.0, 100.0) if claim.endswith('%') else (1.0, 0.01)
  beyond = [(number * scale - value) * sign / unit for scale in scales]
  slack = 1e-6
  return any(-0.5 - slack <= b < 1 - slack for b in beyond)
