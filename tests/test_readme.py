"""The first screen of README.md: its figures, its picture, its example."""

import copy
import json
import re
import runpy
from types import SimpleNamespace

import pytest

from benchmarks import first_page, machine, tables
from jaxagent.config import recipe
from tests.commands import ROOT

README = (ROOT / 'README.md').read_text()
EXAMPLE = ROOT / 'docs' / 'forest.py'
FLOW = runpy.run_path(str(ROOT / 'docs' / 'flow.py'))
NAMES = tables.TABLES['first page'][0].split()


def _results() -> dict:
  return {
    name: json.loads((machine.RESULTS / f'{name}.json').read_text())
    for name in NAMES
  }


def _fifth_less(node):
  """The same result with every measured number changed."""
  if isinstance(node, dict):
    return {k: _fifth_less(v) for k, v in node.items()}
  if isinstance(node, list):
    return [_fifth_less(v) for v in node]
  if isinstance(node, bool) or not isinstance(node, (int, float)):
    return node
  return node * 0.8 if isinstance(node, float) else node + 1


@pytest.mark.parametrize('name', ['quickstart', 'async_core', 'kill_resume'])
def test_a_figure_of_the_first_page_changes_with_its_result(name):
  results = _results()
  before = first_page.bullets(*results.values())
  results[name] = _fifth_less(results[name])
  after = first_page.bullets(*results.values())
  changed = [a != b for a, b in zip(before.splitlines(), after.splitlines())]
  assert changed.index(True) == NAMES.index(name) and sum(changed) == 1


@pytest.mark.parametrize(
  'name, key, of',
  [('decode', 'sampler', 'native'), ('learner_step', 'arm', '1.5B')],
)
def test_a_ratio_of_the_first_page_changes_with_one_of_its_sides(name, key, of):
  results = _results()
  before = first_page.bullets(*results.values())
  results[name] = copy.deepcopy(results[name])
  for row in results[name]['rows']:
    if row[key] == of:
      row['tokens_per_s'] *= 2
  after = first_page.bullets(*results.values())
  changed = [a != b for a, b in zip(before.splitlines(), after.splitlines())]
  assert changed.index(True) == NAMES.index(name) and sum(changed) == 1


def test_a_seed_that_does_not_improve_is_counted_as_such():
  result = copy.deepcopy(_results()['quickstart'])
  policies = result['seeds']['0']['policies']
  policies['rl']['heldout'] = policies['sft']['heldout']
  assert '2 of 3 seeds improve' in first_page.learning(result)


def test_the_control_is_said_to_fall_only_where_each_seed_of_it_falls():
  result = copy.deepcopy(_results()['quickstart'])
  said = first_page.learning(result)
  assert '(of single steps, narrower than 95 %)' in said
  assert re.search(r'shuffled rewards, falls from [\d.-]+ to [\d.-]+\.$', said)
  policies = result['control']['0']['policies']
  policies['rl']['heldout'] = policies['sft']['heldout']
  assert 'shuffled rewards, goes from' in first_page.learning(result)


def test_the_gain_of_not_waiting_has_each_number_of_turns_and_the_greatest_age():
  rows = copy.deepcopy(_results()['async_core'])['real']
  said = first_page.waiting({'real': rows})
  assert re.search(
    r'make [\d.]+ \(15 turns\) to [\d.]+ \(one turn\) times', said
  )
  for row in rows:
    if row['rest'] == 'wait' and row['turns'] == 15:
      row['updates_per_hour'] /= 2
    if row['turns'] == 1:
      row['staleness_max'] = 77.0
  after = first_page.waiting({'real': rows})
  first = [float(re.search(r'make ([\d.]+)', t)[1]) for t in (said, after)]
  assert first[1] == pytest.approx(2 * first[0], abs=0.11)
  assert 'stale samples are kept' in after and '77 (one turn)' in after


def test_a_sample_that_is_trained_twice_after_a_kill_is_named():
  result = copy.deepcopy(_results()['kill_resume'])
  result['async'] |= {'trained_once': False, 'executed_again': 3}
  result['sync']['equal_to_the_last_digit'] = False
  text = first_page.kills(result)
  assert 'some samples twice and repeats 3 finished executions.' in text


def test_the_picture_is_drawn_from_its_source():
  """Else: python docs/flow.py."""
  drawn = FLOW['picture'](FLOW['SOURCE'].read_text())
  assert FLOW['PICTURE'].read_text() == drawn
  assert 'docs/img/flow.svg' in README


def test_text_of_the_picture_fits_into_its_boxes():
  for line in FLOW['SOURCE'].read_text().splitlines():
    for text in line.split(' | ')[1:]:
      assert len(text) <= 24, f'{text!r} is wider than a box'


@pytest.mark.parametrize(
  'line', ['circle a 0 0', 'box a 0', 'box a x 0 host T', 'arrow a b']
)
def test_a_line_that_cannot_be_drawn_is_named(line):
  with pytest.raises(ValueError, match=re.escape(repr(line))):
    FLOW['picture'](line)


def test_an_arrow_across_rows_and_columns_is_refused():
  boxes = 'box a 0 0 host A\nbox b 1 1 host B\n'
  with pytest.raises(ValueError, match='neither in a row nor in a column'):
    FLOW['picture'](boxes + 'arrow a b')


def test_the_example_of_the_page_is_the_file():
  shown = re.search(r'```python\n(.*?)```', README, re.DOTALL)[1]
  assert shown == EXAMPLE.read_text().split('"""\n\n', 1)[1]
  assert len([line for line in shown.splitlines() if line]) == 12


@pytest.fixture(scope='module')
def example():
  return recipe.load(f'{EXAMPLE}:Forest')


def test_the_config_of_the_example_names_its_recipe_and_its_tasks():
  config = runpy.run_path(str(EXAMPLE))['get_config']()
  assert config.recipe == f'{EXAMPLE}:Forest'
  assert config.work_dir == 'workdir/forest'
  for task in (*config.tasks.heldin, *config.tasks.heldout):
    assert (ROOT / 'tasks' / task).is_dir()


@pytest.mark.parametrize('task', ['digits', 'wine', 'breast-cancer'])
def test_the_example_makes_a_script_of_the_task_with_the_model_of_the_response(
  example, task
):
  script = (ROOT / 'tasks' / task / 'env' / 'train.py').read_text()
  state = SimpleNamespace(files={'train.py': script}, script='train.py')

  class Started(example):
    def __init__(self):
      self.starts = {task: SimpleNamespace(state=state)}

  code = Started().program(SimpleNamespace(task=task), '3')
  compile(code, task, 'exec')
  assert 'model = RandomForestClassifier(max_depth=3).fit(' in code


def test_the_pages_that_are_compared_with_results_hold_the_first_page():
  assert 'README.md' in tables.PAGES
  assert '<!-- table: first page -->' in README
