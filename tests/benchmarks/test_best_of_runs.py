"""Runs of the best of K: options that a run takes, and the account of made-up ones."""

import ast
import math

import pytest

from benchmarks import best_of_runs as runs_
from benchmarks import claims
from configs import rl_for_mle
from jaxagent.config import rules


@pytest.mark.parametrize('names, options', runs_.arms())
def test_each_arm_is_a_config_that_a_run_takes(names, options):
  config = rl_for_mle.get_config().unlock()
  for option in (*runs_.STUDY.options, *options):
    key, _, value = option.partition('=')
    section, _, name = key.partition('.')
    was = config[section][name]
    config[section][name] = ast.literal_eval(value) if _plain(was) else value
  assert rules.complaint(config.lock(), ('config',)) == ''
  assert runs_.STUDY.shares(options) == (names['task'] == runs_.TASK)


def _plain(value) -> bool:
  """Whether the command line reads such a value as Python does."""
  return not isinstance(value, str)


def _policy(best, private, valid):
  chosen = {
    str(k): {'validation': best, 'private': private} for k in (1, 4, 16, 32)
  }
  return {'valid': valid, 'exec_s': 0.5, 'chosen': chosen}


def _rows(seeds=3):
  """Best-of is better by all but `diabetes`'s private error; seeds differ a little."""
  after = {
    runs_.MEAN: (0.96, 0.96, 0.9),
    'mean, no duration weights': (0.97, 0.97, 0.9),
    'entropic': (0.975, 0.97, 0.9),
    runs_.BEST: (0.985, 0.98, 0.95),
    runs_.SHUFFLED: (0.969, 0.97, 0.6),
    f'{runs_.MEAN}, {runs_.OTHER}': (55.0, 50.0, 0.9),
    f'{runs_.BEST}, {runs_.OTHER}': (54.0, 51.0, 0.9),
  }
  rows = []
  for names, _ in runs_.arms():
    best, private, valid = after[names['arm']]
    sft = (
      (0.97, 0.97, 0.65) if names['task'] == runs_.TASK else (54.9, 50.1, 0.65)
    )
    rows.append(
      names
      | {
        'runs': [
          {
            'sft': _policy(*sft),
            'rl': _policy(best + s / 1e5, private + s / 1e5, valid),
          }
          for s in range(seeds)
        ]
      }
    )
  return rows


def test_what_is_so_is_shown_and_what_is_not_is_not():
  found = claims.account(runs_.CLAIMS, _rows())
  shown = {claim: mean > half for claim, (mean, half) in found.items()}
  not_so = [claim for claim, so in shown.items() if not so]
  assert not_so == [
    'best of 16 after the mean, more than before (validation)',
    'best of 16 after shuffled rewards, more than before',
    'diabetes: and its private score',
  ]
  gain, half = found['best of 16 after best_of, more than before (validation)']
  assert gain == pytest.approx(0.015, abs=2e-5) and half < 1e-4
  error, _ = found['diabetes: and its private score']
  assert error == pytest.approx(-0.9, abs=1e-3)  # the lower is the better


def test_the_table_has_each_arm_and_what_it_began_with(tmp_path):
  rows = _rows()
  text = runs_.table({'rows': rows})
  lines = text.splitlines()
  names = [line.split('|')[1].strip() for line in lines[2:11]]
  assert names[0] == 'SFT, digits' and names[6] == 'SFT, diabetes'
  assert set(runs_.ARMS) < set(names)
  assert '| best of 8 | 0.95 ± 0.00 | 0.9850 ± 0.0000' in text
  runs_.plot(rows, tmp_path / 'curves.svg')
  assert (tmp_path / 'curves.svg').stat().st_size > 1000


def test_a_policy_without_a_valid_program_has_no_figure():
  none = {'validation': None, 'private': None}
  run = {'rl': {'valid': 0.0, 'exec_s': None, 'chosen': {'16': none}}}
  assert math.isnan(runs_.chosen(run, 'rl', 'private'))
  assert math.isnan(runs_.chosen(run, 'rl', 'private', 64))
