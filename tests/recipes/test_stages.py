"""Which stored records an evaluation uses again."""

from __future__ import annotations

import types as stubs

import pytest

from jaxagent.recipes import stages


def _host(work):
  eval_ = stubs.SimpleNamespace(policies=('sft', 'rl'))
  config = stubs.SimpleNamespace(eval=eval_)
  return stubs.SimpleNamespace(config=config, work=work, wall_s={})


def _evaluate(work, updates: int) -> str:
  """What is kept of the policy after so many updates: made, or as it was."""
  path = work / 'eval' / 'rl.json'
  engine = stubs.SimpleNamespace(update_weights=lambda *given: None, version=0)
  policy = stubs.SimpleNamespace(engine=engine)
  learner = stubs.SimpleNamespace(policy_params=None, updates=updates)

  def run():
    if not path.exists():
      path.write_text(f'of {updates}')

  stages.evaluate(_host(work), policy, learner, 'rl', run)
  return path.read_text()


def test_a_policy_that_was_trained_further_is_evaluated_anew(tmp_path, capsys):
  assert [_evaluate(tmp_path, n) for n in (5, 5)] == ['of 5'] * 2
  (tmp_path / 'eval' / 'rl.journal').mkdir()
  assert [_evaluate(tmp_path, n) for n in (9, 9)] == ['of 9'] * 2
  assert (tmp_path / 'eval' / 'rl.json.after_5').read_text() == 'of 5'
  assert not (tmp_path / 'eval' / 'rl.journal').exists()
  assert 'rl.json was made after update 5' in capsys.readouterr().out


def test_what_was_set_aside_before_is_kept_too(tmp_path):
  """As where checkpoints were removed, so that an update comes again."""
  _evaluate(tmp_path, 5)
  for updates in (9, 5, 9, 5):
    journal = tmp_path / 'eval' / 'rl.journal'
    journal.mkdir()
    (journal / 'a').touch()
    _evaluate(tmp_path, updates)
  aside = {path.name for path in (tmp_path / 'eval').glob('*.after_5*')}
  assert aside == {
    'rl.json.after_5', 'rl.json.after_5.2',
    'rl.journal.after_5', 'rl.journal.after_5.2',
  }  # fmt: skip


@pytest.mark.parametrize('updates', [0, 9])
def test_records_without_a_number_of_updates_are_used_as_they_are(
  tmp_path, updates
):
  (tmp_path / 'eval').mkdir()
  (tmp_path / 'eval' / 'rl.json').write_text('a copy')
  assert _evaluate(tmp_path, updates) == 'a copy'
