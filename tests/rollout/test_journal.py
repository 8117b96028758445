"""Killed anywhere: nothing drawn again, nothing that finished run again."""

import collections
import json
import tracemalloc

import numpy as np
import pytest

from jaxagent.clock import VirtualClock
from jaxagent.data.prompts import PromptSource
from jaxagent.rollout import events
from jaxagent.rollout.journal import Journal, JournalError
from jaxagent.rollout.records import SchedulerConfig
from jaxagent.rollout.requests import (
  ExecutionResult,
  GenerationResult,
  Key,
  Workers,
)
from jaxagent.rollout.scheduler import Scheduler
from jaxagent.testing import keyed
from jaxagent.testing.fake_executor import FakeExecutor
from jaxagent.testing.virtual_inbox import VirtualInbox
from jaxagent.types import Executed, Outcome, State
from tests.subset import fast

UPDATES, BATCH, POOL = 6, 8, 40


class Killed(Exception):
  pass


class MortalJournal(Journal):
  """Dies before or after it has written its `dies`-th event from now on."""

  dies = None
  torn = False

  def append(self, event):
    with self.lock:
      if self.dies == 0:
        if self.torn:
          with open(self._newest(), 'ab') as f:
            f.write(json.dumps(event).encode()[:7])
        raise Killed
      if self.dies is not None:
        self.dies -= 1
      super().append(event)

  def _newest(self):
    return self._segments()[-1]


class Run:
  """A run with checkpoints, as a loop would have it."""

  def __init__(self, folder, turns, rest, group_size=1):
    self.folder, self.turns, self.rest = folder, turns, rest
    self.group_size = group_size
    self.saved = [(0, None)]  # step, state of each checkpoint
    self.trained = {}  # update -> tokens, rewards, exec_s
    self.executed = collections.Counter()  # finished and known
    self.drawn = collections.Counter()

  def start(self):
    self.journal = MortalJournal(self.folder)
    clock = VirtualClock()
    inbox = VirtualInbox(clock, self.journal)
    executor = FakeExecutor(inbox, keyed.act, 12, 4)
    self.sampler = keyed.KeyedSampler(inbox)
    interaction = keyed.Helped(self.turns)
    scheduler = Scheduler(
      PromptSource(range(POOL), group_size=self.group_size),
      interaction,
      Workers(self.sampler, executor, inbox, clock),
      SchedulerConfig(
        BATCH,
        rest=self.rest,
        oversample=1.5 if self.rest == 'cancel' else 1.0,
        max_staleness=None,
        watchdog_s=1e5,
        group_size=self.group_size,
        roles=keyed.Helped.roles,
      ),
      journal=self.journal,
    )
    saved = self.saved[-1][1]
    scheduler.resume(None if saved is None else json.loads(saved))
    return scheduler

  def live(self, dies=None, torn=False):
    """Goes on from the last checkpoint, until the end or its death."""
    scheduler = self.start()
    self.journal.dies, self.journal.torn = dies, torn
    try:
      for version in range(self.saved[-1][0], UPDATES):
        self.sampler.version = version
        batch = scheduler.next_batch(version)
        self.trained[version] = [_told(s) for s in batch.samples]
        scheduler.mark_trained(batch.prompt_ids, version)
        scheduler.work(version)
        if version % 2:
          saved = json.dumps(scheduler.checkpoint())
          self.saved.append((version + 1, saved))
    except Killed:
      self.journal.close()
      return None
    self.journal.close()
    return scheduler

  def counts(self):
    """Of each kind of event, by call."""
    found = collections.defaultdict(collections.Counter)
    for event in Journal(self.folder).events():
      if 'c' in event:
        found[event['e']][event['p'], event['d'], event['c']] += 1
    return found


def _told(sample):
  return (
    sample.prompt_id,
    sample.token_ids.tolist(),
    sample.loss_mask.tolist(),
    sample.behaviour_logprobs.tolist(),
    sample.reward,
    sample.exec_s,
    sample.version,
  )


@pytest.mark.parametrize('rest', ['wait', 'carry_over', 'cancel'])
@pytest.mark.parametrize(
  'turns, group_size', fast([(1, 1), (1, 4), (15, 1)], first=2)
)
def test_killed_at_fifty_points(tmp_path, rest, turns, group_size):
  whole = Run(tmp_path / 'whole', turns, rest, group_size)
  end = whole.live()
  events = sum(1 for _ in Journal(tmp_path / 'whole').events())
  rng = np.random.default_rng([turns, group_size])
  run = Run(tmp_path / 'killed', turns, rest, group_size)
  ended, kills = None, 0
  while ended is None:
    # Some die before their first event: a resume must bear that, too.
    dies = int(rng.integers(events // 30)) if kills < 50 else None
    ended = run.live(dies, torn=bool(rng.random() < 0.3))
    kills += ended is None
    if ended is None and len(run.saved) > 1 and rng.random() < 0.1:
      run.saved.pop()  # it turns out to be damaged
  assert kills >= 40
  ended.ledger.check()
  counts = ended.ledger.counts()
  assert counts['trained'] == UPDATES * BATCH == end.ledger.counts()['trained']
  found = run.counts()
  for kind in ('sampled', 'executed'):
    assert found[kind] and max(found[kind].values()) == 1, kind
  # Each call that was asked for again had no answer.
  if rest == 'wait':  # what is trained does not hang on the time
    assert run.trained == whole.trained


def test_batches_handed_out_are_handed_out_again_as_they_were(tmp_path):
  run = Run(tmp_path, 2, 'carry_over')
  scheduler = run.start()
  first = []
  for version in range(4):
    run.sampler.version = version
    batch = scheduler.next_batch(version)
    first.append([_told(s) for s in batch.samples])
    scheduler.mark_trained(batch.prompt_ids, version)
  run.journal.close()
  again = run.start()  # there was no checkpoint
  before = sum(1 for _ in Journal(tmp_path).events())
  for version in range(4):
    batch = again.next_batch(version)
    assert [_told(s) for s in batch.samples] == first[version]
    again.mark_trained(batch.prompt_ids, version)
    drawn = [e['e'] for e in Journal(tmp_path).events()][before:]
    assert 'asked' not in drawn and 'begun' not in drawn
  run.sampler.version = 4
  assert again.next_batch(4).stats['staleness/max'] >= 0


def test_a_damaged_journal_is_named(tmp_path):
  run = Run(tmp_path, 1, 'wait')
  run.start().next_batch(0)
  run.journal.close()
  (path,) = tmp_path.glob('*.jsonl')
  lines = path.read_bytes().splitlines(keepends=True)
  path.write_bytes(b''.join([*lines[:3], b'{"e": tor\n', *lines[3:]]))
  with pytest.raises(JournalError, match='line 4: damaged'):
    run.start()


def test_a_journal_of_another_pool_is_refused(tmp_path):
  run = Run(tmp_path, 1, 'wait', group_size=1)
  run.start().next_batch(0)
  run.journal.close()
  (path,) = tmp_path.glob('*.jsonl')
  text = path.read_text().replace('"group":"0/0"', '"group":"7/0"')
  path.write_text(text)
  with pytest.raises(JournalError, match='drew group 7/0.*now gives 0/0'):
    run.start()


def test_prompts_are_those_that_the_journal_drew(tmp_path):
  """Of a source that gives others now: restored, or begun anew."""
  run = Run(tmp_path, 1, 'wait', group_size=1)
  run.start().next_batch(0)
  run.journal.close()
  (path,) = tmp_path.glob('*.jsonl')
  lines = [json.loads(line) for line in path.read_text().splitlines()]
  groups = [line for line in lines if line['e'] == 'drawn']
  kept, gone = groups[0], groups[1]
  kept['key'], gone['key'] = (kept['key'] + 1) % POOL, POOL + 5
  path.write_text(''.join(json.dumps(line) + '\n' for line in lines))
  scheduler = run.start()
  found = {
    m.prompt_id: m
    for g in scheduler._book.buffer.groups.values()
    for m in g.members
  }
  restored, anew = (found[f'{g["group"]}/0'] for g in (kept, gone))
  assert restored.prompt.payload == kept['key'] and restored.finished
  assert not anew.finished and anew.progress is None and anew.draws == 0
  batch = scheduler.next_batch(0)  # it is drawn now
  assert anew.prompt_id in batch.prompt_ids


def test_what_a_text_model_said_is_restored():
  said = GenerationResult(Key('0/0/0', 1, 2), 'Thought: \udcff"\n')
  event = json.loads(json.dumps(events.of_result(said)))
  assert events.result_of(event) == said


def test_a_torn_line_is_cut_off_and_written_over(tmp_path):
  journal = Journal(tmp_path)
  assert journal.begin() == 0
  journal.append({'e': 'trained', 'update': 0, 'prompts': ['ä']})
  with open(tmp_path / '00000000.jsonl', 'ab') as f:
    f.write(b'{"e":"dra')
  assert len(list(journal.events())) == 1
  journal.append({'e': 'trained', 'update': 1, 'prompts': []})
  assert [e['update'] for e in journal.events()] == [0, 1]
  assert journal.begin() == 1
  journal.append({'e': 'trained', 'update': 2, 'prompts': []})
  assert [e['update'] for e in journal.events(1)] == [2]
  journal.prune(1)
  assert [p.name for p in tmp_path.iterdir()] == ['00000001.jsonl']
  assert Journal(tmp_path).begin() == 2


def test_who_only_reads_changes_no_torn_line(tmp_path):
  """The line may be one that a run is writing at this moment."""
  journal = Journal(tmp_path)
  journal.begin()
  path = tmp_path / '00000000.jsonl'
  path.write_bytes(b'{"e":"a"}\n{"e":"dra')
  assert [e['e'] for e in journal.events(repair=False)] == ['a']
  assert path.read_bytes().endswith(b'dra')
  assert [e['e'] for e in journal.events()] == ['a']
  assert path.read_bytes() == b'{"e":"a"}\n'


def test_a_large_segment_is_read_line_by_line(tmp_path):
  line = json.dumps({'e': 'x' * 1000}).encode() + b'\n'
  (tmp_path / '00000000.jsonl').write_bytes(line * 20_000)
  tracemalloc.start()
  assert sum(1 for _ in Journal(tmp_path).events()) == 20_000
  _, most = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert most < 1 << 20  # of 20 MB


def test_a_journal_says_whether_a_run_writes_it(tmp_path):
  journal, other = Journal(tmp_path), Journal(tmp_path)
  assert not other.is_written
  journal.begin()
  assert other.is_written
  journal.begin()
  assert other.is_written
  journal.close()
  assert not other.is_written


def test_a_long_result_is_kept_small():
  """States hold copies of each file, and a journal a state of each step."""
  files = {f'.backup/{i}/train.py': f'x = {i}\n' + 'y = 1\n' * 500
           for i in range(8)}  # fmt: skip
  state = State('s', 'wine', {**files, 'odd': '\udcff'}, 0.5, 0.5)
  executed = Executed(Outcome.OK, 1.0, state)
  event = events.of_result(ExecutionResult(Key('p', 1, 1), 1, executed))
  line = json.dumps(event)
  assert len(line) < 2000 < sum(map(len, files.values()))
  assert events.result_of(json.loads(line)).executed == executed
