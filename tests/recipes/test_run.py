"""The whole job, small, as a user runs it: killed, resumed, compared."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors import numpy as st

from jaxagent import audit, conversations
from jaxagent.analysis.summary import load
from jaxagent.data import chat
from jaxagent.data.ledger import Ledger
from jaxagent.files import readings
from jaxagent.metrics import read_records
from jaxagent.models import __main__ as models_cli
from jaxagent.recipes.results import read_traces
from jaxagent.rollout import rollout_log
from jaxagent.testing import process_tree, small_hf
from tests.rollout.served import need_vllm
from tests.runs import SMALL, environment, share_tasks

ROOT = pathlib.Path(__file__).parents[2]
UPDATES, BATCH = 3, 6
OPTIONS = (
  *SMALL,
  "--config.tasks.heldin=('wine','diabetes')",
  "--config.tasks.heldout=('breast-cancer',)",
  f'--config.rl.updates={UPDATES}',
  f'--config.rl.batch_size={BATCH}',
  '--config.rl.rest=wait',
  '--config.rollout.batch_invariant=True',
  '--config.rl.weighting=none',
)
# The other engine has no such option.
VLLM = (
  '--config.rollout.engine=vllm',
  '--config.rollout.batch_invariant=False',
)
# What the learner computed; clocks differ between runs.
SAME = (
  'actor/pg_loss',
  'actor/grad_norm',
  'critic/vf_loss',
  'critic/score/mean',
)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def _start(work, *options) -> subprocess.Popen:
  share_tasks(work)
  command = [sys.executable, '-m', 'jaxagent.main', *OPTIONS, *options]
  return subprocess.Popen(
    [*command, f'--work_dir={work}'],
    cwd=ROOT,
    env=environment(),
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def _finish(work, *options) -> str:
  process = _start(work, *options)
  out, _ = process.communicate(timeout=1200)
  assert process.returncode == 0, out[-3000:]
  return out


def _wait_for(path: pathlib.Path, process: subprocess.Popen) -> None:
  end = time.monotonic() + 600
  while not path.exists() and time.monotonic() < end:
    assert process.poll() is None, process.stdout.read()[-3000:]
    time.sleep(0.05)


def _learned(work: pathlib.Path) -> list[dict]:
  """What the learner computed at each update."""
  records = read_records(work / 'logs' / 'metrics.jsonl')
  return [{key: r[key] for key in ('step', *SAME)} for r in records]


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  work = tmp_path_factory.mktemp('run') / 'work'
  return work, _finish(work)


def test_a_run_leaves_summary_report_and_traces(finished):
  work, out = finished
  summary = load(work / 'summary.json')
  assert summary['isolation_tier'] in ('T3', 'T2', 'T1')
  assert summary['stand_ins'] and summary['executions'] > 0
  for policy in ('starter', 'sft', 'rl'):
    assert summary[policy]['heldin']['relative_gain']['n'] > 0
  page = (work / 'report.html').read_text()
  assert '<html' in page and 'http://' not in page.split('<body')[0]
  for word in ('summary', 'TensorBoard', 'report'):
    assert word in out
  assert audit.audit(work)['differences'] == []


def test_an_export_gives_transformers_the_runs_ids(finished, tmp_path):
  transformers = pytest.importorskip('transformers')
  work, back = finished[0], tmp_path / 'back'
  assert models_cli.main(['export', f'--model={work}', f'--out={back}']) == 0
  theirs = transformers.AutoTokenizer.from_pretrained(back)
  own = chat.load(work / 'tokenizer')
  found = read_traces(work / 'rl' / 'traces')
  texts = [t.record.response for t in found if t.record.valid_action]
  texts += readings.texts_of_run(work)
  assert len(texts) > 100
  for text in texts:
    ids = own.encode(text)
    assert theirs(text, add_special_tokens=False)['input_ids'] == ids
    assert theirs.decode(ids) == own.decode_response(ids)


def test_every_trained_prompt_has_one_line_that_agrees_with_its_trace(finished):
  work, _ = finished
  lines = {
    r['prompt_id']: r
    for r in rollout_log.read(work / rollout_log.LOG)
    if r['fate'] == 'trained'
  }
  traces = read_traces(work / 'rl' / 'traces')
  assert len(lines) == len(traces) == UPDATES * BATCH
  for trace in traces:
    line, record = lines[trace.prompt_id], trace.record
    assert line['update'] == trace.update and line['task'] == record.task
    assert line['outcome'] == record.outcome.value
    assert line['reward'] == trace.reward
    assert line['seconds']['execution'] <= line['seconds']['total']


def test_every_prompt_is_trained_exactly_once(finished):
  ledger = Ledger.load(finished[0] / 'rl' / 'ledger.json')
  assert ledger.counts()['trained'] == UPDATES * BATCH


def test_whole_trajectories_from_the_same_sft_policy(finished, tmp_path):
  """Episode-wise RL; and step-wise RL's directory is not mistaken for its own."""
  whole, _ = finished
  work = tmp_path / 'work'
  _share(whole, work, 'collect', 'tokenizer', 'sft', 'eval')
  (work / 'eval' / 'rl.json').unlink()
  loop = '--config.recipe=episodewise'
  _finish(work, loop, '--config.episode.max_steps=3', '--config.rl.updates=2')
  ledger = Ledger.load(work / 'rl' / 'ledger.json')
  assert ledger.counts()['trained'] == 2 * BATCH
  steps = read_traces(work / 'rl' / 'traces')
  assert 2 * BATCH < len(steps) <= 3 * 2 * BATCH
  assert {s.record.task for s in steps} == {'wine', 'diabetes'}
  assert {s.record.step for s in steps} == {0, 1, 2}
  assert audit.audit(work)['differences'] == []
  process = _start(whole, loop)
  out, _ = process.communicate(timeout=600)
  assert (
    process.returncode == 2
    and 'by the stepwise recipe, not by episodewise' in out
  )


def test_expert_steps_as_a_file_teach_the_same(finished, tmp_path):
  """Written as ShareGPT and read again: the same rows, so the same losses."""
  whole, _ = finished
  file, work = tmp_path / 'steps.jsonl', tmp_path / 'work'
  tasks = f'--tasks_dir={ROOT / "tasks"}'
  written = [str(whole), str(file), '--keep_duplicates', tasks]
  assert conversations.main(written) == 0
  assert conversations.main([str(tmp_path), str(file), tasks]) == 2
  _share(whole, work, 'collect', 'tokenizer')
  options = ('--config.stage=sft', "--config.eval.policies=('starter',)")
  _finish(work, *options, f'--config.sft.conversations={file}')
  logs = [read_records(w / 'logs/sft/metrics.jsonl') for w in (whole, work)]
  assert len(logs[0]) > 3
  assert [r['sft/loss'] for r in logs[1]] == [r['sft/loss'] for r in logs[0]]


def test_killed_and_resumed_equals_uninterrupted(finished, tmp_path):
  """kill -9 after the first update; the rest is equal to the last digit."""
  whole, _ = finished
  work = tmp_path / 'work'
  shutil.copytree(whole, work, symlinks=True)
  shutil.rmtree(work / 'rl')
  (work / 'eval' / 'rl.json').unlink()
  (work / 'logs' / 'metrics.jsonl').unlink()
  process = _start(work)
  _wait_for(work / 'rl' / 'traces' / 'update_000000.jsonl', process)
  os.kill(process.pid, signal.SIGKILL)
  process.communicate(timeout=60)
  _finish(work)
  assert _learned(work) == _learned(whole)
  ledger = Ledger.load(work / 'rl' / 'ledger.json')
  assert ledger.counts()['trained'] == UPDATES * BATCH
  assert json.loads((work / 'eval' / 'rl.json').read_text()) is not None


@pytest.fixture
def small_disk(tmp_path):
  """A tmpfs as `folder`; `fill()` lets it take no more, `free()` much."""
  folder = tmp_path / 'disk'
  folder.mkdir()

  def mount(*options) -> None:
    subprocess.run(['mount', *options, folder], check=True)

  try:
    mount('-t', 'tmpfs', '-o', 'size=2G', 'tmpfs')
  except (OSError, subprocess.CalledProcessError):
    pytest.skip('needs the right to mount a tmpfs')

  def fill() -> None:
    for _ in range(100):
      used = shutil.disk_usage(folder).used
      try:
        return mount('-o', f'remount,size={used}')
      except subprocess.CalledProcessError:  # it grew in between
        time.sleep(0.01)
    raise AssertionError('the disk grows faster than it can be closed')

  try:
    yield SimpleNamespace(
      folder=folder, fill=fill, free=lambda: mount('-o', 'remount,size=2G')
    )
  finally:
    subprocess.run(['umount', '--lazy', folder], check=True)


def test_a_full_disk_at_each_stage_ends_in_a_line_and_goes_on(
  finished, small_disk
):
  whole, _ = finished
  work = small_disk.folder / 'work'
  for begun in (
    'collect/trajectories.jsonl',
    'logs/sft/metrics.jsonl',
    'rl/traces/update_000000.jsonl',
  ):
    process = _start(work)
    _wait_for(work / begun, process)
    small_disk.fill()
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 1, (begun, out[-3000:])
    # Orbax's own threads may still say what they could not finish.
    said = [line for line in out.splitlines() if line.startswith('error: ')]
    assert len(said) == 1, (begun, out)
    assert said[0].startswith('error: no space left on the disk'), said
    assert f'File "{ROOT}/jaxagent' not in out, (begun, out)
    small_disk.free()
  _finish(work)
  assert _learned(work) == _learned(whole)
  assert audit.audit(work)['differences'] == []
  ledger = Ledger.load(work / 'rl' / 'ledger.json')
  assert ledger.counts()['trained'] == UPDATES * BATCH


def test_another_config_is_refused(finished):
  work, _ = finished
  done = subprocess.run(
    [
      sys.executable,
      '-m',
      'jaxagent.main',
      *OPTIONS,
      '--config.seed=5',
      f'--work_dir={work}',
    ],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=300,
  )
  assert done.returncode == 2
  assert 'seed: 0 -> 5' in done.stderr and '--work_dir' in done.stderr


def _share(whole: pathlib.Path, work: pathlib.Path, *stages: str) -> None:
  """Gives a run what another one has done."""
  for stage in stages:
    if (whole / stage).exists():
      shutil.copytree(whole / stage, work / stage)
  shutil.copy(whole / 'snapshots.sqlite', work)  # what `collect` refers to


def test_a_models_own_folder_is_trained_and_given_back(finished, tmp_path):
  """Its tokenizer and template in, the same log-probs in transformers out."""
  torch = pytest.importorskip('torch')
  transformers = pytest.importorskip('transformers')
  source, work, back = (tmp_path / n for n in ('source', 'work', 'back'))
  critic = small_hf.make(tmp_path / 'critic', hidden_size=32)
  small_hf.make(source)
  _share(finished[0], work, 'collect')
  out = _finish(
    work,
    f'--config.model.path={source}',
    f'--config.rl.critic_path={critic}',
    "--config.rollout.stop=(';;',)",
    '--config.rollout.max_num_seqs=4',
    '--config.rl.schedule=cosine',
  )
  assert load(work / 'summary.json')['rl']['heldin']['mean_reward']['n'] > 0, (
    out
  )
  assert models_cli.main(['export', f'--model={work}', f'--out={back}']) == 0
  tokenizer = transformers.AutoTokenizer.from_pretrained(back)
  turns = [{'role': 'user', 'content': 'Improve train.py'}]
  ids = tokenizer.apply_chat_template(
    turns, add_generation_prompt=True, return_dict=False
  )
  assert ids == chat.load(work / 'tokenizer').encode_prompt('Improve train.py')
  np.save(tmp_path / 'ids.npy', np.asarray([ids]))
  scores = tmp_path / 'scores.npy'
  ours = ['score', f'--model={back}', f'--tokens={tmp_path / "ids.npy"}']
  assert models_cli.main([*ours, f'--out={scores}']) == 0
  model = transformers.AutoModelForCausalLM.from_pretrained(back).eval()
  with torch.no_grad():
    logits = model(torch.tensor([ids])).logits[0, :-1].double()
  want = logits.log_softmax(-1)[range(len(ids) - 1), ids[1:]].numpy()
  np.testing.assert_allclose(np.load(scores)[0], want, atol=2e-5)
  trained = st.load_file(back / 'model.safetensors')
  before = st.load_file(source / 'model.safetensors')
  name = 'model.layers.0.mlp.up_proj.weight'
  assert np.abs(trained[name] - before[name]).max() > 1e-4


@pytest.mark.vllm
def test_a_run_with_vllm_and_its_server_killed(finished, tmp_path):
  """Exit 0, each prompt trained once, and log-probs that are the trainer's."""
  need_vllm()
  whole, _ = finished
  work = tmp_path / 'work'
  _share(whole, work, 'collect', 'tokenizer', 'sft')
  process = _start(work, *VLLM)
  _wait_for(work / 'rl' / 'traces' / 'update_000000.jsonl', process)
  started = process_tree.below(process.pid)
  server = next(
    p
    for p in started
    if '-m vllm.entrypoints' in process_tree.name(p)
    and 'guard' not in process_tree.name(p)
  )
  os.kill(server, signal.SIGKILL)
  out, _ = process.communicate(timeout=300)
  assert process.returncode == 0, out[-3000:]
  assert out.count('A vLLM server was lost') == 1, out[-3000:]
  assert out.count(' is back.') == 1, out[-3000:]
  assert not [p for p in started if process_tree.lives(p)]
  ledger = Ledger.load(work / 'rl' / 'ledger.json')
  assert ledger.counts()['trained'] == UPDATES * BATCH
  assert audit.audit(work)['differences'] == []
  first = read_records(work / 'logs' / 'metrics.jsonl')[0]
  assert first['training/rollout_logps_diff_max'] < 1e-4


@pytest.mark.vllm
def test_whole_trajectories_of_a_qwen3_through_vllm(finished, tmp_path):
  """Its template, 15 steps each, and log-probs of the very ids it sampled."""
  need_vllm()
  source, work = tmp_path / 'source', tmp_path / 'work'
  small_hf.make(source, model_type='qwen3', hidden_size=128, tied=False)
  _share(finished[0], work, 'collect')
  _finish(
    work,
    '--config.recipe=episodewise',
    f'--config.model.path={source}',
    *VLLM,
    '--config.sft.epochs=0',
    '--config.rl.updates=1',
    '--config.rl.batch_size=2',
    "--config.eval.policies=('rl',)",
  )
  traces = read_traces(work / 'rl' / 'traces')
  steps = Counter(t.prompt_id for t in traces)
  assert len(steps) == 2 and set(steps.values()) == {15}
  (update,) = read_records(work / 'logs' / 'metrics.jsonl')
  assert update['training/rollout_logps_diff_max'] < 1e-4
  assert update['actor/grad_norm'] > 0
  opened = chat.load(work / 'tokenizer').encode_prompt('')
  assert all(t.prompt_tokens > len(opened) for t in traces)
  assert audit.audit(work)['differences'] == []
