"""Sessions that begin anew from a state, and beside each other."""

from __future__ import annotations

import concurrent.futures

import pytest

from jaxagent.envs import mlagentbench, session, step_env
from jaxagent.envs.snapshots import Snapshots
from jaxagent.types import Outcome
from tests.envs.test_mlagentbench import pool, start  # noqa: F401

WRITES = """\
import os, pathlib
print(sorted(name for name in os.listdir('.') if name[0] != '.'))
pathlib.Path('w.bin').write_bytes(bytes(range(256)))
pathlib.Path('n.txt').open('a').write('1')
pathlib.Path('submission.csv').write_text('0.5')
"""
STEPS = (
  ('Write File', {'file_name': 'a.py', 'content': WRITES}),
  ('Execute Script', {'script_name': 'a.py'}),
  ('Execute Script', {'script_name': 'a.py'}),
  ('Read File', {'file_name': 'n.txt'}),
  ('Copy File', {'source': 'w.bin', 'destination': 'v.bin'}),
  ('Python REPL', {'command': "len(open('v.bin', 'rb').read())"}),
  ('Edit Script (AI)', {
    'script_name': 'a.py', 'edit_instruction': 'x', 'save_name': 'b.py',
  }),
  ('Undo Edit Script', {'script_name': 'a.py'}),
  ('List Files', {'dir_path': '.'}),
  ('Read File', {'file_name': 'nowhere'}),
)  # fmt: skip


@pytest.mark.parametrize('dialect', step_env.DIALECTS)
def test_put_back_and_replayed_says_the_same(tmp_path, pool, dialect):  # noqa: F811
  walk = start(tmp_path, pool, dialect=dialect)
  walk.env.store = Snapshots(tmp_path / 'kept.sqlite')
  keys, told = [], []
  for action, args in STEPS:
    keys.append(walk.env.store.put(walk.state))
    told.append(walk.execute(action, args))
  assert '256' in told[5] and 'v.bin' in told[8]
  last = walk.state
  for number in (0, 2, 5):
    # As another process would find it.
    kept = Snapshots(tmp_path / 'kept.sqlite')
    walk.reset_to(kept.get(keys[number]))
    again = [walk.execute(action, args) for action, args in STEPS[number:]]
    assert again == told[number:] and walk.state == last


def test_a_session_that_is_reset_has_all_its_steps_again(tmp_path, pool):  # noqa: F811
  walk = start(tmp_path, pool)
  walk.max_steps, begun = 2, walk.state
  listing = ('List Files', {'dir_path': '.'})
  assert walk.execute(*listing) == walk.execute(*listing)
  assert walk.execute(*listing) == mlagentbench.SHUT_DOWN
  walk.execute('Final Answer', {'final_answer': 'done'})
  assert walk.done
  walk.reset_to(begun)
  assert (walk.results, walk.times, walk.state) == ([], [], begun)
  assert not walk.is_final() and 'train.py' in walk.execute(*listing)
  walk.max_time_s = 0.0
  walk.reset_to(begun)
  assert walk.is_final()


def test_whatever_is_asked_is_answered(tmp_path, pool):  # noqa: F811
  walk = start(tmp_path, pool)
  lines = {'start_line_number': 10**5000, 'end_line_number': 2}
  told = walk.execute(
    'Inspect Script Lines', {'script_name': 'train.py', **lines}
  )
  assert 'The action input for Inspect Script Lines needs to be' in told
  (result,) = walk.results
  assert result.outcome is Outcome.INVALID_ACTION
  assert result.action == 'Inspect Script Lines' and not result.valid_action


def test_sessions_have_names_of_their_own(tmp_path, pool):  # noqa: F811
  walk = start(tmp_path, pool)
  assert session.Session(walk.env, walk.state).name != walk.name


def test_forks_do_not_see_each_other(tmp_path, pool):  # noqa: F811
  walk = start(tmp_path, pool)
  walk.max_steps, begun = 7, walk.state
  script = {'file_name': 'n.py', 'content': "print(open('n.txt').read())"}
  walk.execute('Write File', script)
  forks = [*walk.fork(2), *walk.fork(1), *walk.fork(1, begun)]
  assert len({walk.name, *(fork.name for fork in forks)}) == 5
  assert [fork.max_steps for fork in forks] == [7] * 4
  assert forks[3].state == begun and forks[0].results == []

  def run(fork: session.Session) -> str:
    note = {'file_name': 'n.txt', 'content': fork.name}
    fork.execute('Write File', note)
    return fork.execute('Execute Script', {'script_name': 'n.py'})

  with concurrent.futures.ThreadPoolExecutor(3) as threads:
    told = list(threads.map(run, forks[:3]))
  assert [text.splitlines()[-1] for text in told] == [f.name for f in forks[:3]]
  assert 'n.txt' not in walk.state.files and len(walk.results) == 1
  with pytest.raises(ValueError, match='k=0 must be'):
    walk.fork(0)
