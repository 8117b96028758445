"""Intervals of too few trajectories say how many they take."""

import json

import numpy as np
import pytest

from benchmarks import intervals as simulation
from benchmarks import machine
from jaxagent.analysis import evaluation, needed

RESULT = json.loads((machine.RESULTS / 'intervals.json').read_text())


def test_the_numbers_are_those_of_the_simulation():
  """Else: those of benchmarks/results/intervals.json go into analysis/needed.py."""
  found = {
    int(tasks): {int(k): n for k, n in row.items()}
    for tasks, row in RESULT['needed'].items()
  }
  assert found == needed.NEEDED
  assert simulation.needed(RESULT['best_at_k']) == RESULT['needed']
  assert needed.SIMULATED == simulation.RUNS[-1]


def test_means_over_steps_hold_from_the_fewest_trajectories_that_were_simulated():
  for runs in simulation.RUNS:
    of = [row['jackknife'] for row in RESULT['steps'] if row['runs'] == runs]
    assert (np.mean(of) >= simulation.ENOUGH) == (
      runs >= needed.NEEDED_OF_STEPS
    )


@pytest.mark.parametrize(
  'counts, k, wanted',
  [
    ([16] * 10, 8, {}),
    ([16] * 6, 8, {'needs': 32}),
    ([16] * 9, 8, {'needs': 32}),  # as of six tasks
    ([32] * 9, 8, {}),
    ([32] * 8 + [31], 8, {'needs': 32}),
    ([128] * 2, 8, {'needs': None}),  # as of one task
    ([16] * 3, 3, {'needs': 32}),  # as of best@4
    ([16] * 3, 2, {}),
    ([200] * 10, 9, {'needs': None}),
    ([31], 1, {'needs': 32}),
    ([16, 0, 16, 16], 1, {}),
    ([0], 1, {}),
    ([], 1, {}),
  ],
)
def test_the_fewest_trajectories_of_a_task_decide(counts, k, wanted):
  assert needed.needs(counts, k) == wanted


def test_the_intervals_of_an_evaluation_say_what_they_need():
  scales = {task: evaluation.Scale(0.5, 1.0, True) for task in 'abc'}
  runs = [
    evaluation.Run(task, 0.5 + i / 40, (i / 16, 0.5), (True,))
    for task in 'abc'
    for i in range(16)
  ]
  found = evaluation.section(runs, scales, k=8)
  assert {name: needed.text(one) for name, one in found.items()} == {
    'mean_reward': '',
    'avg_at_k': '',
    'best_at_k': 'needs 128',
    'relative_gain': '',
    'valid_action_rate': '',
  }
  single = evaluation.section(runs[:1], scales, k=1)
  assert (
    single['mean_reward']['needs'] == 8 and single['avg_at_k']['needs'] == 32
  )
  starter = evaluation.section(runs[:1], scales, k=8, deterministic=True)
  assert not any('needs' in one for one in starter.values())


def test_more_than_was_simulated_is_said_so():
  assert needed.text({'needs': None}) == 'needs more than 128'
