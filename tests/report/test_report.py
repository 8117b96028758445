"""The report: self-contained, complete, and deaf to hostile text."""

import copy
import dataclasses
import html.parser
import re
import shutil
import subprocess
import sys
from types import MappingProxyType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jaxagent import report
from jaxagent.analysis import behaviour
from jaxagent.records import Evaluated
from jaxagent.report import charts, page
from tests import made
from tests.report import synthetic

HOSTILE = (
  '<script>alert(1)</script>',
  '</pre></details><img src=x onerror=alert(1)>',
  '" onmouseover="alert(1)',
  "' autofocus onfocus='alert(1)",
  '{{ 7 * 7 }}{% for x in y %}',
  'javascript:alert(1)',
  '</script><svg onload=alert(1)>',
)
finite = st.floats(allow_nan=False, allow_infinity=False)


class _Page(html.parser.HTMLParser):
  """Every tag and attribute that a browser would see."""

  def __init__(self, text: str):
    super().__init__(convert_charrefs=True)
    self.tags: list[tuple[str, dict]] = []
    self.seen: list[str] = []
    self.feed(text)

  def handle_starttag(self, tag, attrs):
    self.tags.append((tag, dict(attrs)))

  def handle_data(self, data):
    self.seen.append(data)


@pytest.fixture()
def arguments(tmp_path):
  return synthetic.build(tmp_path)


def _write(tmp_path, arguments, options=MappingProxyType({}), **changes):
  contents = dataclasses.replace(arguments, **changes)
  path = report.write_report(tmp_path / 'report.html', contents, **options)
  return path.read_text(encoding='utf-8')


def test_complete_and_self_contained(tmp_path, arguments):
  text = _write(tmp_path, arguments)
  seen = _Page(text)
  tags = [tag for tag, _ in seen.tags]
  assert tags.count('script') == 1
  assert not {'img', 'link', 'iframe', 'object', 'embed', 'form'} & set(tags)
  for _, attributes in seen.tags:
    assert not {'src', 'href', 'action', 'srcset'} & set(attributes)
  assert 'http:' not in text and 'https:' not in text and 'url(' not in text
  for words in (
    'Policies compared',
    'Training',
    'Execution time',
    'Trajectories',
    'prefers-color-scheme: dark',
    'Entropy',
    'KL to the reference',
    'Staleness',
    'Behaviour',
  ):
    assert words in text
  for task in synthetic.TASKS:
    assert task[0] in text
  assert tags.count('svg') >= 10 + 10 + 2 + 1
  assert len(text) < 3_000_000


def _hostile(word: str) -> tuple[str, Evaluated]:
  step = made.step(
    response=f'Thought: {word}\nAction: {word}\nAction Input: {word}',
    action=word,
    diff=word,
    observation=word,
  )
  return word, made.evaluated(step, step, task=word, split=word)


@pytest.mark.parametrize('word', HOSTILE)
def test_nothing_a_model_writes_becomes_markup(tmp_path, arguments, word):
  plain = _write(tmp_path, arguments, trajectories=[_hostile('plain')])
  text = _write(
    tmp_path,
    arguments,
    trajectories=[_hostile(word)],
    tasks=[{'name': word, 'metric': word, 'modality': word}],
    summary={
      'stand_ins': [word],
      'untrusted': {word: word},
      'versions': {word: word},
      'wall_s': {word: 1},
    },
    options={'title': word},
  )
  seen = _Page(text)
  kinds = {tag for tag, _ in seen.tags}
  assert kinds <= {tag for tag, _ in _Page(plain).tags}
  for _, attributes in seen.tags:
    assert not any(name.startswith('on') for name in attributes)
    assert 'autofocus' not in attributes
  assert sum(tag == 'script' for tag, _ in seen.tags) == 1
  assert word in ''.join(seen.seen)  # and yet it is shown


def test_policy_admits_one_script_by_hash(tmp_path, arguments):
  text = _write(tmp_path, arguments)
  policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
  script = text.split('<script>')[1].split('</script>')[0]
  assert page._script_hash(script) in policy.replace('&#39;', "'")
  assert "default-src 'none'" in policy
  assert "script-src 'unsafe-inline'" not in policy


def test_controls_are_made_visible():
  assert page.clean('a\x1b[31m\u202eb\ud800\r\nc\td') == (
    'a\\x1b[31m\\u202eb\\ud800\nc\td'
  )
  long = page.clean('x' * 100_000)
  assert len(long) < 21_000 and '80000 characters left out' in long
  assert page.clean(None) == ''


def test_behaviour_has_a_column_a_part_and_a_row_a_figure(arguments):
  held = {
    'train': {
      'first_quarter': {'edit_rate': 0.9, 'exec_s': 0.4},
      'last_quarter': {'edit_rate': 0.1, 'exec_s': None},
    },
    'rl': {'heldout': {'edit_rate': 0.2}},
  }
  shown = page._behaviour({'behaviour': held})
  assert shown['columns'] == [
    'Training, first quarter',
    'Training, last quarter',
    'RL held-out',
  ]
  cells = {row['label']: row['cells'] for row in shown['rows']}
  assert cells['Edits'] == [0.9, 0.1, 0.2]
  assert cells['Execution'] == [0.4, None, None]
  assert page._behaviour({}) is None
  names = {name for name, _, _ in page.BEHAVIOUR}
  assert names <= set(behaviour.FIGURES)
  whole = page._behaviour(arguments.summary)
  assert len(whole['columns']) == len(page.BEHAVIOUR_PARTS) == 6


def test_behaviour_is_a_table_of_the_page(tmp_path, arguments):
  figures = dict.fromkeys(behaviour.FIGURES, None) | {'edit_rate': 0.4321}
  held = {'sft': {'heldout': figures}}
  text = _write(tmp_path, arguments, summary={'behaviour': held})
  table = text.split('What the policies did')[1].split('</table>')[0]
  assert table.count('<tr>') == 1 + len(page.BEHAVIOUR)
  assert 'SFT held-out' in table and '0.432' in table and '–' in table


def test_the_page_explains_the_reward_of_its_kind_of_run(tmp_path, arguments):
  of_step, of_solution = page.REWARD['step'], page.REWARD['solution']
  summary = arguments.summary
  how = summary['evaluation'] | {'start': 'scratch and improved'}
  for changed, said, other in (
    (summary, of_step, of_solution),
    (summary | {'evaluation': how}, of_solution, of_step),
  ):
    text = _write(tmp_path, arguments, summary=changed)
    assert all(words in text for words in said)
    assert not any(words in text for words in other)
    assert 'Mean reward</b><span>of a' in text


def test_partial_runs_draw_what_there_is(tmp_path, arguments):
  text = _write(
    tmp_path,
    arguments,
    summary={},
    metrics_jsonl=tmp_path / 'none.jsonl',
    sft_metrics_jsonl=None,
    trajectories=[],
    durations=[],
    tasks=[],
  )
  assert '<h2>Tasks</h2>' not in text and 'The run' in text


def test_trajectories_are_thinned_evenly(tmp_path, arguments):
  text = _write(tmp_path, arguments, {'max_trajectories': 16})
  tags = [a for t, a in _Page(text).tags if a.get('class') == 'trajectory']
  assert len(tags) == 16
  assert len({(a['data-policy'], a['data-task']) for a in tags}) == 16
  assert '16 of 64 are in this file' in text


def test_steps_as_the_stages_record_them(tmp_path, arguments):
  record = made.step(
    response='Reflection: none yet\nThought: try trees\nAction: Edit\n'
    'Action Input: {\n "a": 1\n}',
    observation='the observation',
  )
  shown = page.step_of(made.taken(record, reward=1.0), 0)
  assert shown['thought'] == 'try trees' and shown['action'] == 'Edit'
  assert shown['action_input'].startswith('{')
  assert shown['output'] == 'the observation'


def test_ticks_and_numbers():
  assert charts.nice_ticks(0, 1) == [0, 0.25, 0.5, 0.75, 1.0]
  assert charts.nice_ticks(3, 3)[0] < 3 < charts.nice_ticks(3, 3)[-1]
  assert [charts.number(x) for x in (None, 0, 0.12345, 62.1, 1234.5)] == [
    '–',
    '0',
    '0.123',
    '62.1',
    '1,234' if round(1234.5) == 1234 else '1,235',
  ]
  assert charts.smooth([(0, 1.0), (1, 4.0), (2, 1.0)], 3)[1] == (1, 2.0)
  assert charts.log_histogram([0.0, -1.0, float('nan')], 's') == ''


@given(finite, finite)
@example(0.1, 0.1 + 2e-17)  # neighbours: no number lies between them
@example(1.0, 1.0 + 2.3e-16)
@example(-sys.float_info.max, sys.float_info.max)
@example(0.0, 5e-324)
def test_a_chart_of_any_two_values(a, b):
  """Distinct ticks on both sides of them, and coordinates that are numbers."""
  a, b = sorted((a, b))
  ticks = charts.nice_ticks(a, b)
  assert 2 <= len(set(ticks)) == len(ticks) <= 12
  if abs(a) < 1e299 and abs(b) < 1e299:
    slack = 1e-8 * max(abs(a), abs(b))
    assert ticks[0] <= a + slack and b - slack <= ticks[-1]
  drawn = charts.line_chart('any', [('x', 's0', [(0, a), (1, b)])], 'update')
  assert 'nan' not in drawn and 'inf' not in drawn


@pytest.mark.skipif(
  not shutil.which('chromium'), reason='chromium is not installed'
)
@pytest.mark.slow
def test_in_a_browser_filters_run_and_nothing_else(tmp_path, arguments):
  trajectories = [_hostile(w) for w in HOSTILE] + arguments.trajectories
  _write(tmp_path, arguments, trajectories=trajectories)
  flags = (
    '--headless --no-sandbox --disable-gpu --disable-quic --no-first-run '
    '--disable-background-networking --disable-component-update --disable-sync'
  ).split()
  done = subprocess.run(
    [
      'chromium',
      *flags,
      f'--user-data-dir={tmp_path / "profile"}',
      '--dump-dom',
      f'file://{tmp_path / "report.html"}',
    ],
    capture_output=True,
    text=True,
    timeout=60,
  )
  # The script that ships ran (it fills the count), under the policy.
  assert f'{len(trajectories)} of {len(trajectories)} shown' in done.stdout


def test_seconds_of_rl_are_shown_by_task_and_outcome(tmp_path, arguments):
  seconds = {
    'wine': {'ok': {'count': 3, 'exec_s': 7.5}},
    '<b>x': {'timeout': {'count': 1, 'exec_s': 1234.0}},
  }
  summary = arguments.summary | {'extra': {'rl_seconds': seconds}}
  seen = _Page(_write(tmp_path, arguments, summary=summary)).seen
  text = ' '.join(' '.join(seen).split())
  assert '<b>x timeout 1 1,234.0 wine ok 3 7.5' in text


def test_an_interval_of_too_few_trajectories_is_shown_with_what_it_needs(
  tmp_path, arguments
):
  text = _write(tmp_path, arguments)  # best@8 of 16, five tasks and three
  labels = re.findall(r'<div class="label">(.*?)</div>', text)
  told = [label for label in labels if 'needs' in label]
  assert len(labels) == 5 and len(told) == 1
  assert '<b>best@K</b>' in told[0]
  assert 'Held-in: needs 128; Held-out: needs 128' in told[0]
  summary = copy.deepcopy(arguments.summary)
  summary['rl']['heldin']['mean_reward']['needs'] = 8
  tasks = [dict(arguments.tasks[0]), *arguments.tasks[1:]]
  tasks[0]['rl'] = tasks[0]['rl'] | {'needs': 32}
  text = _write(tmp_path, arguments, summary=summary, tasks=tasks)
  tile = text.partition('Held-in mean reward')[2].partition('</article>')[0]
  assert '], needs 8</p>' in tile
  assert text.count(', needs 32</small>') == 1


def test_executions_that_were_looked_up_are_told_above_all_else(
  tmp_path, arguments
):
  summary = arguments.summary | {'extra': {'recorded_executions': 12}}
  text = _write(tmp_path, arguments, summary=summary)
  assert '<b>12</b> executions were looked up' in text.partition('<h2>')[0]
  assert 'looked up' not in _write(tmp_path, arguments)


def test_the_best_of_k_shows_what_validation_chose_and_what_it_was_worth(
  tmp_path, arguments
):
  interval = {'mean': 0.5, 'low': 0.25, 'high': 0.75, 'n': 7, 'needs': None}
  none = {'mean': None, 'low': None, 'high': None, 'n': 0}
  task = arguments.tasks[0]['name']
  part = {
    'chosen': {
      '1': {'none': 1.0, 'validation': none, 'private': none},
      '16': {'none': 0.125, 'validation': interval, 'private': interval},
    }
  }
  solutions = {'rl': {task: {'scratch': part, 'improved': {}}}}
  summary = arguments.summary | {'extra': {'solutions': solutions}}
  text = _write(tmp_path, arguments, summary=summary)
  part = text[text.index('<h2>Best of K</h2>') :]
  cells = re.findall(r'<td class="num">(.*?)</td>', part)[:8]
  assert cells[:4] == ['1', '–', '–', '1.00']
  assert cells[4:] == [
    '16',
    *['0.5000<small>0.2500 – 0.7500, needs more than 128</small>'] * 2, '0.125',
  ]  # fmt: skip
  assert 'Best of K' not in _write(tmp_path, arguments)
