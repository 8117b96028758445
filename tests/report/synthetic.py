"""A made-up run, for the report's tests and for looking at its design."""

from __future__ import annotations

import math
import pathlib
import random

from jaxagent import metrics
from jaxagent.analysis import behaviour, evaluation, intervals, summary
from jaxagent.envs import parser
from jaxagent.records import Evaluated
from jaxagent.report import Contents
from tests import made

TASKS = (
  ('digits', 'heldin', 'image', 'accuracy', True, 0.91, 0.99),
  ('wine', 'heldin', 'tabular', 'accuracy', True, 0.84, 0.98),
  ('diabetes', 'heldin', 'tabular', 'rmse', False, 62.1, 53.4),
  ('keywords', 'heldin', 'text', 'f1', True, 0.55, 0.83),
  ('sunspots', 'heldin', 'timeseries', 'mae', False, 24.3, 15.0),
  ('denoise', 'heldout', 'image', 'rmse', False, 0.21, 0.12),
  ('linnerud', 'heldout', 'tabular', 'mae', False, 9.2, 7.7),
  ('modules', 'heldout', 'text', 'accuracy', True, 0.61, 0.86),
)
_LEVEL = {'starter': 0.0, 'sft': 0.16, 'rl': 0.44}
DIFF = """--- train.py
+++ train.py
@@ -9,3 +9,3 @@
 model = make_pipeline(
-  StandardScaler(), LogisticRegression(max_iter=50, random_state=0)
+  StandardScaler(), SVC(C=8.0, gamma='scale', random_state=0)
 )"""


def build(folder: pathlib.Path, seed: int = 0) -> Contents:
  """What a report of made-up figures is made of."""
  rng = random.Random(seed)
  trajectories = [
    (policy, _trajectory(rng, policy, task, i))
    for policy in ('sft', 'rl')
    for task in TASKS
    for i in range(4)
  ]
  return Contents(
    summary=_summary(rng),
    metrics_jsonl=_metrics(folder / 'rl', rng),
    sft_metrics_jsonl=_sft_metrics(folder / 'sft', rng),
    trajectories=trajectories,
    durations=[rng.lognormvariate(-2.2, 1.1) for _ in range(3000)],
    tasks=[_task_row(rng, task) for task in TASKS],
  )


def _score(rng, policy: str, task: tuple) -> float:
  level = _LEVEL[policy] + rng.gauss(0, 0.1 if policy != 'starter' else 0)
  return task[5] + level * (task[6] - task[5])


def _summary(rng) -> dict:
  scales = {t[0]: evaluation.Scale(t[5], t[6], t[4]) for t in TASKS}
  built = summary.Summary(
    config_sha='3f' * 32, isolation_tier='T2', stand_ins=('expert', 'editor')
  )
  built.set_evaluation(
    start='starter',
    seed=0,
    temperature=1.0,
    k=8,
    trajectories_per_task=16,
    max_steps=2,
  )
  for policy, level in _LEVEL.items():
    for split in summary.SPLITS:
      runs = [
        evaluation.Run(
          t[0],
          _score(rng, policy, t),
          tuple(min(1.0, max(0.0, rng.gauss(0.3 + level, 0.2))) for _ in '123'),
          tuple(rng.random() < 0.9 + 0.1 * level for _ in '123'),
        )
        for t in TASKS
        if t[1] == split
        for _ in range(16)
      ]
      built.set_section(policy, split, evaluation.section(runs, scales, k=8))
  for stage, wall in (
    ('tasks', 4.1),
    ('collect', 71.0),
    ('sft', 148.2),
    ('rl', 131.7),
    ('evaluate', 58.3),
  ):
    built.set_wall(stage, wall)
  for who, parts in summary.BEHAVIOUR.items():
    for part in parts:
      shown = [_trajectory(rng, 'rl', TASKS[0], i) for i in range(40)]
      steps = [step.record for t in shown for step in t.steps]
      built.set_behaviour(who, part, behaviour.figures(steps))
  built.add_outcomes(
    {'ok': 4120, 'script_error': 391, 'timeout': 64, 'invalid_action': 210}
  )
  return built.build()


def _metrics(folder: pathlib.Path, rng) -> pathlib.Path:
  with metrics.MetricWriter(folder) as writer:
    for step in range(1, 41):
      rise = 1 - math.exp(-step / 12)
      mean = 0.4 + rng.gauss(0.2, 0.05)
      writer.write(
        step,
        {
          'critic/score/mean': 0.34 + 0.3 * rise + rng.gauss(0, 0.03),
          'actor/entropy': 0.42 - 0.2 * rise + rng.gauss(0, 0.01),
          'actor/kl_loss': 0.03 * rise + abs(rng.gauss(0, 0.002)),
          'sandbox/valid_action_rate': 0.91 + 0.04 * rise,
          'sandbox/edit_rate': 0.8 - 0.3 * rise,
          'sandbox/changed_rate': 0.5 - 0.2 * rise,
          'staleness/mean': 0.6 + rng.random(),
          'staleness/max': float(rng.randint(1, 4)),
          'duration/trained/mean': mean,
          'duration/trained/p95': mean * (2.5 + rng.random()),
          'actor/grad_norm': math.exp(rng.gauss(-0.5, 0.3)),
          'critic/vf_loss': 0.05 * math.exp(-step / 15) + 0.01,
          'response_length/mean': 101 + rng.gauss(0, 2),
        },
      )
  return writer.path


def _sft_metrics(folder: pathlib.Path, rng) -> pathlib.Path:
  with metrics.MetricWriter(folder) as writer:
    for step in range(0, 751, 10):
      loss = 0.35 + 6.2 * math.exp(-step / 60) + rng.gauss(0, 0.02)
      norm = 0.4 + 3 * math.exp(-step / 70)
      writer.write(step, {'sft/loss': loss, 'sft/grad_norm': norm})
  return writer.path


def _task_row(rng, task: tuple) -> dict:
  row = dict(
    name=task[0],
    split=task[1],
    modality=task[2],
    metric=task[3],
    higher_is_better=task[4],
    m_init=task[5],
    m_best=task[6],
    starter=task[5],
  )
  for policy in ('sft', 'rl'):
    scores = [_score(rng, policy, task) for _ in range(16)]
    row[policy] = intervals.interval({task[0]: scores}, intervals.of_means)
  return row


RESPONSE = parser.format_response(
  {
    'Thought': 'A linear model is too stiff here; a kernel machine may fit the '
    'curved classes better, and it is still quick to train.'
  },
  'Edit Script (AI)',
  {
    'script_name': 'train.py',
    'edit_instruction': 'Replace the estimator by SVC with C=8.',
    'save_name': 'train.py',
  },
)


def _trajectory(rng, policy: str, task: tuple, index: int) -> Evaluated:
  score = task[5]
  steps = []
  for number in range(3):
    outcome = rng.choice(['ok', 'ok', 'ok', 'script_error', 'timeout'])
    after = _score(rng, policy, task) if outcome == 'ok' else None
    record = made.step(
      outcome,
      task=task[0],
      step=number,
      is_edit=True,
      tier='T2',
      response=RESPONSE,
      action='Edit Script (AI)',
      diff=DIFF,
      observation='validation score: 0.941\nwrote submission.csv'
      if outcome == 'ok'
      else 'Traceback (most recent call last):\n  File "train.py", line 12\n'
      "ValueError: Unknown label type: 'continuous'",
      exec_s=rng.lognormvariate(-2, 1),
      score_before=score,
      score_after=after,
    )
    reward = 0.0 if outcome == 'script_error' else rng.random()
    steps.append(made.taken(record, reward=reward))
    score = after if after is not None else score
  return made.evaluated(*steps, task=task[0], index=index, split=task[1])


if __name__ == '__main__':
  import sys

  from jaxagent.report import write_report

  target = pathlib.Path(sys.argv[1])
  print(write_report(target / 'report.html', build(target)))
