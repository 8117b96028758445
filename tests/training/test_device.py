"""The tokenizer of a run: what it was when the run began."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import transformers

from configs import stepwise_ppo
from jaxagent.analysis import summary
from jaxagent.checkpoint import CheckpointManager
from jaxagent.data import chat
from jaxagent.errors import UserError
from jaxagent.files import readings
from jaxagent.learner import LearnerConfig
from jaxagent.testing import small_hf
from jaxagent.training import device, multi_process

TEXTS = ['model = make_pipeline(SVC(C=1.0))\n'] * 20


def _host(work, path: str = ''):
  config = stepwise_ppo.get_config('tiny').unlock()
  config.model.path = str(path)
  return SimpleNamespace(work=work, config=config)


@pytest.fixture
def folder(tmp_path):
  return small_hf.make(tmp_path / 'model', vocab_size=600, hidden_size=16)


def test_a_runs_own_tokenizer_is_the_same_when_it_goes_on(tmp_path):
  first = device.make_tokenizer(_host(tmp_path), TEXTS)
  again = device.make_tokenizer(_host(tmp_path), ['other texts'])
  assert again.encode(TEXTS[0]) == first.encode(TEXTS[0])


def test_a_runs_own_tokenizer_that_reads_otherwise_is_refused(tmp_path):
  """As another version of `tokenizers` might."""
  device.make_tokenizer(_host(tmp_path), TEXTS)
  file = tmp_path / 'tokenizer' / 'tokenizer.json'
  raw = json.loads(file.read_text())
  raw['normalizer'] = {'type': 'Lowercase'}
  file.write_text(json.dumps(raw))
  with pytest.raises(UserError, match='gave ids .* and gives .*--work_dir'):
    device.make_tokenizer(_host(tmp_path), TEXTS)


def test_the_copy_in_the_work_directory_is_the_models_own(folder, tmp_path):
  given = device.make_tokenizer(_host(tmp_path / 'work', folder), TEXTS)
  copied = tmp_path / 'work' / 'tokenizer' / 'tokenizer.json'
  assert copied.read_bytes() == (folder / 'tokenizer.json').read_bytes()
  own = chat.load(copied.parent)
  for text in readings.PROBES:
    assert own.encode_prompt(text) == given.encode_prompt(text)


@pytest.mark.slow
def test_a_model_whose_tokenizer_was_exchanged_is_refused(folder, tmp_path):
  work = tmp_path / 'work'
  device.make_tokenizer(_host(work, folder), TEXTS)
  held = (work / 'tokenizer' / 'tokenizer.json').read_bytes()
  small_hf.make(tmp_path / 'other', vocab_size=500, hidden_size=16)
  shutil.copy(tmp_path / 'other' / 'tokenizer.json', folder)
  with pytest.raises(UserError, match='gave .* under transformers'):
    device.make_tokenizer(_host(work, folder), TEXTS)
  assert (work / 'tokenizer' / 'tokenizer.json').read_bytes() == held


@pytest.mark.skipif(
  int(transformers.__version__.split('.')[0]) < 5,
  reason='4 keeps tokenizer.json',
)
def test_a_model_that_transformers_reads_otherwise_is_refused(folder, tmp_path):
  file = folder / 'tokenizer.json'
  raw = json.loads(file.read_text())
  raw['pre_tokenizer']['pretokenizers'][0]['pattern'] = {'Regex': r'\w+|\W'}
  file.write_text(json.dumps(raw))
  with pytest.raises(UserError, match='gives .* the ids .*tokenizer.json'):
    device.make_tokenizer(_host(tmp_path / 'work', folder), TEXTS)


def test_the_summary_names_what_decides_ids():
  found = summary.package_versions()
  assert found['transformers'] == transformers.__version__
  assert 'tokenizers' in found


def test_a_kernel_that_cannot_be_is_named_before_anything_is_loaded():
  model = device.model_config(stepwise_ppo.get_config('tiny'), 512)
  plan = multi_process.Plan(
    model.replace(attention='splash'),
    LearnerConfig(),
    mesh={'fsdp': 1},
    seed=0,
    pad_id=0,
    path='no/such/folder',
  )
  with pytest.raises(
    ValueError, match="attention='splash': needs a TPU.*choose 'auto'"
  ):
    multi_process.build(plan)


class _Learner:
  """A learner of nothing but a number of updates."""

  def __init__(self, updates: int = 0):
    self.updates, self.loads = updates, 0

  def start_rl(self):
    self.updates = 0

  def shapes(self):
    return {'updates': np.int64(0)}

  def let_go(self):
    pass

  def misfit(self, state):
    return ''

  def load_state(self, tree):
    self.updates, self.loads = int(tree['updates']), self.loads + 1


def _save(work, *scores):
  manager = CheckpointManager(work / 'rl' / 'checkpoints')
  for step, score in enumerate(scores, 1):
    manager.save(step, {'updates': np.int64(step)}, score=score)


@pytest.mark.parametrize(
  'scores, evaluated',
  [
    ((None, None, None), 3),
    ((0.1, 0.5, 0.3), 2),
    ((0.1, 0.5, None), 2),
    ((0.1, 0.1, 0.1), 1),
    ((0.1, 0.2, 0.3), 3),
  ],
)
def test_what_is_evaluated_is_the_best_that_is_kept_else_the_newest(
  tmp_path, scores, evaluated
):
  _save(tmp_path, *scores)
  host = SimpleNamespace(work=tmp_path)
  restored, trained = _Learner(), _Learner(updates=3)
  device.restore_rl(host, restored)
  device.restore_best(host, trained)
  assert restored.updates == trained.updates == evaluated
  assert trained.loads == (evaluated != 3)


def test_without_a_checkpoint_there_is_nothing_to_evaluate(tmp_path):
  with pytest.raises(UserError, match='holds no RL checkpoint'):
    device.restore_rl(SimpleNamespace(work=tmp_path), _Learner())
