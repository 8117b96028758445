"""The notebook docs/tutorial.ipynb runs from its first cell to its last."""

from __future__ import annotations

import json
import re

import pytest

from tests.runs import ROOT

NOTEBOOK = ROOT / 'docs' / 'tutorial.ipynb'
CELLS = json.loads(NOTEBOOK.read_text())['cells']


def test_no_output_of_a_run_is_kept_in_git():
  code = [cell for cell in CELLS if cell['cell_type'] == 'code']
  assert len(code) > 6
  for cell in code:
    assert cell['outputs'] == [] and cell['execution_count'] is None


def test_a_cell_explains_in_few_words_what_the_next_one_does():
  for cell in CELLS:
    if cell['cell_type'] == 'markdown':
      assert len(' '.join(cell['source']).split()) < 80, cell['source']


def _printed(cell) -> str:
  return ''.join(one.get('text', '') for one in cell['outputs'])


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_stranger_who_runs_all_cells_sees_a_reward_and_a_curve(
  tmp_path, monkeypatch
):
  nbformat = pytest.importorskip(
    'nbformat', reason="needs pip install '.[tutorial]'"
  )
  nbclient = pytest.importorskip('nbclient')
  pytest.importorskip('ipykernel')
  monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
  monkeypatch.setenv('XLA_FLAGS', '')  # compiled as a user's job is
  book = nbformat.read(NOTEBOOK, as_version=4)
  nbclient.NotebookClient(
    book,
    timeout=1200,
    kernel_name='python3',
    resources={'metadata': {'path': str(tmp_path)}},
  ).execute()  # an exception of a cell is raised
  out = {'\n'.join(cell.source.splitlines()[-1:]): cell for cell in book.cells}
  assert 'nearest neighbours' in _printed(
    out['print(task.metric, task.m_init, task.m_best)']
  )
  contained = _printed(out['print(result.output)'])
  assert (
    '42' in contained and 'Error' in contained
  )  # it printed, and met no one
  rewards = re.findall(r'-> (\S+)', ''.join(map(_printed, _code(book))))
  assert rewards == ['0.0', '1.0', '-1.0']
  plots = [
    output['data']['image/png']
    for cell in _code(book)
    for output in cell.outputs
    if 'image/png' in output.get('data', {})
  ]
  assert len(plots) == 1
  run = tmp_path / 'workdir/tutorial/run'
  lines = (run / 'logs/metrics.jsonl').read_text().splitlines()
  assert sum('critic/rewards/mean' in line for line in lines) == 10
  assert (run / 'report.html').exists()
  told = _printed(out["print('reward  ', turn['reward'])"])
  assert re.search(r'prompt +wine, leaf: ', told)
  assert re.search(r'reward +-?[\d.]+', told)
  audit = _printed(
    out['!{sys.executable} -m jaxagent.cli audit workdir/tutorial/run']
  )
  assert re.search(r'\b0 differ', audit), audit


def _code(book):
  return [cell for cell in book.cells if cell.cell_type == 'code']
