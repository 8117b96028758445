"""The tree of solutions: every program once, below what it improves upon."""

from __future__ import annotations

import re

from jaxagent.report import progress, write_tree
from tests import made


def _record(name: str, improves: str = '', reward: float = 0.5, **more):
  update = more.pop('update', 3)
  fields = {
    'solution_id': name, 'improves': improves, 'task': 't',
    'outcome': 'ok', 'score_after': reward, 'exec_s': 1.0,
    'milestones': ('loaded data',), 'response': f'plan of {name}',
    'observation': '<script>alert(1)</script>', **more,
  }  # fmt: skip
  return made.turn(made.solution(**fields), update=update, reward=reward)


def _plans(page: str) -> list[tuple[float, str]]:
  """(indentation, name) in the order of the page."""
  return [
    (float(m[1]), m[2])
    for m in re.finditer(r'margin-left: ([\d.]+)em.*?plan of (\w+)', page, re.S)
  ]


def test_children_stand_below_their_parents(tmp_path):
  records = [
    _record('a'), _record('b'), _record('c', 'a'), _record('d', 'c'),
    _record('a', 'd'),  # the same program again
    _record('e', 'gone'), _record('', 'a'),
  ]  # fmt: skip
  page = write_tree(tmp_path / 'x.html', records).read_text()
  assert _plans(page) == [
    (0.0, 'a'), (1.2, 'c'), (2.4, 'd'), (0.0, 'b'), (0.0, 'e'),
  ]  # fmt: skip
  assert '5 of 5 different programs' in page and 'update 3, 2 times' in page
  assert page.count('update 3') == 5 and 'built-in' not in page
  assert '<script>' not in page and '&lt;script&gt;' in page


def test_a_program_shows_its_best_run(tmp_path):
  runs = [
    _record(
      'a', reward=reward, score_after=score, update=update, outcome=outcome,
      milestones=(f'of {update}',),
    )
    for update, reward, score, outcome in (
      (1, None, None, 'infrastructure'), (2, -9.0, None, 'timeout'),
      (3, 0.625, 0.75, 'ok'), (4, 0.25, 0.375, 'ok'), (5, None, None, 'timeout'),
    )
  ]  # fmt: skip
  page = write_tree(tmp_path / 'x.html', [*runs, _record('b', 'a')]).read_text()
  assert _plans(page) == [(0.0, 'a'), (1.2, 'b')]
  node = page.split('plan of a')[0]
  assert 'update 3, 5 times' in node and 'improved upon 1 time' in node
  assert 'score <b>0.750</b>' in node and 'reward <b>0.625</b>' in node
  assert '✓ ok' in node and '<p>of 3</p>' in node


def test_the_best_of_a_program_counts_where_few_are_shown(tmp_path):
  records = [
    _record('a', reward=-10.0),
    _record('b'),
    _record('a', reward=0.75),
  ]
  page = write_tree(tmp_path / 'x.html', records, most=1).read_text()
  assert [name for _, name in _plans(page)] == ['a']


def test_the_best_and_what_they_come_from(tmp_path):
  records = [_record('root', reward=-10.0)]
  for i in range(50):
    records.append(_record(f'x{i}', 'root', reward=float(i)))
  page = write_tree(tmp_path / 'x.html', records, most=4).read_text()
  assert [name for _, name in _plans(page)] == ['root', 'x47', 'x48', 'x49']
  assert '4 of 51' in page


def test_how_they_got_better_is_drawn(tmp_path):
  records = [
    _record(name, reward=score, score_after=score, exec_s=seconds)
    for name, score, seconds in (
      ('a', None, 2.0), ('b', 0.5, 1.0), ('c', 0.4, 1.0), ('d', 0.8, 3.5),
    )
  ]  # fmt: skip
  programs = [turn.record for turn in records]
  assert progress.best_over_time(programs) == [(3.0, 0.5), (7.5, 0.8)]
  assert progress.best_over_time(programs, higher=False) == [
    (3.0, 0.5),
    (4.0, 0.4),
  ]
  metrics = [
    {'time': 1000.0 + 60 * i, 'solution/score/t': score}
    for i, score in enumerate((None, 0.5, 0.6))
  ]
  first, second = progress.panels('t', programs, metrics)
  assert first['legend'][0][2] == 0.8 and second['legend'][0][2] == 0.6
  page = write_tree(tmp_path / 'x.html', records, metrics=metrics).read_text()
  assert page.count('<svg') == 2 and 'by minutes' in page
  assert '<svg' not in write_tree(tmp_path / 'y.html', records[:1]).read_text()


def test_a_deep_tree_and_an_empty_one(tmp_path):
  deep = [_record('n0')] + [
    _record(f'n{i}', f'n{i - 1}') for i in range(1, 2000)
  ]
  page = write_tree(tmp_path / 'x.html', deep, most=5000).read_text()
  assert len(_plans(page)) == 2000
  assert '0 of 0' in write_tree(tmp_path / 'y.html', []).read_text()
