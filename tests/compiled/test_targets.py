"""Targets by name, and what is refused before anything is compiled."""

import dataclasses
import pathlib
import types as stubs

import pytest

from jaxagent import plan
from jaxagent.compiled import command, gpus, report, targets
from jaxagent.models import ModelConfig
from jaxagent.recipes.dry_run import Parts

ROOT = pathlib.Path(__file__).parents[2]
CUDNN = '--config.model.attention=cudnn'
TINY = '--config=configs/stepwise_ppo.py'


@pytest.mark.parametrize(
  ('name', 'kind', 'count', 'memory'),
  [
    ('cpu:8', 'cpu', 8, None),
    ('cpu:1', 'cpu', 1, None),
    ('v5e:2x4', 'tpu', 8, 16.0),
    ('v5e:16x16', 'tpu', 256, 16.0),
    ('v5p:2x2x2', 'tpu', 8, 95.0),
    ('v6e:2x4', 'tpu', 8, 32.0),
    ('a100:1x1x8', 'cuda', 8, 80.0),
    ('h100:1x2x8', 'cuda', 16, 80.0),
  ],
)
def test_a_target_has_its_devices(name, kind, count, memory):
  target = targets.parse(name)
  assert (target.name, target.of.kind, target.count) == (name, kind, count)
  assert target.of.memory_gb == memory


@pytest.mark.parametrize(
  ('name', 'complaint'),
  [
    (
      'abacus:8',
      "'abacus' is no known family; choose one like: cpu:8, v5e:2x4",
    ),
    ('', "'' is no known family"),
    ('v5p-16', "'v5p-16' is no known family"),
    ('A100:1x1x8', "'A100' is no known family"),
    ('cpu', "'' is not a number of devices; give one like cpu:8"),
    ('cpu:0', "'0' is not a number of devices"),
    ('cpu:-8', "'-8' is not a number of devices"),
    ('cpu:2x4', "'2x4' is not a number of devices"),
    ('cpu:4096', 'at most 512 devices are simulated'),
    (
      'v5e:8',
      "'8' is not a topology's chips along each axis; give one like v5e:2x4",
    ),
    ('v5p:2x4', "'2x4' is not a topology's chips"),
    (
      'a100:8',
      "'8' is not slices x hosts x GPUs a host; give one like a100:1x1x8",
    ),
    ('h100:1x0x8', "'1x0x8' is not slices x hosts x GPUs a host"),
    ('a100:1x1x8 ', 'is not slices x hosts x GPUs a host'),
  ],
)
def test_other_names_are_refused(name, complaint, capsys):
  assert plan.main([TINY, f'--target={name}']) == 2
  error = capsys.readouterr().err
  assert complaint in error and error.count('\n') == 1


@pytest.mark.parametrize(
  ('name', 'extra'), [('v6e:2x4', 'tpu'), ('h100:1x1x8', 'cuda12')]
)
def test_a_missing_package_is_named(name, extra, monkeypatch, capsys):
  monkeypatch.setattr(targets, '_is_there', lambda module: False)
  assert plan.main([TINY, f'--target={name}']) == 2
  error = capsys.readouterr().err
  assert f"pip install 'jaxagent[{extra}]'" in error
  assert 'launch_scripts/plan_env.sh' in error and error.count('\n') == 1


@pytest.mark.parametrize(
  ('arguments', 'complaint'),
  [
    (
      ['--target=cpu:8', '--config.mesh.tensor=3'],
      'do not divide the 8 devices',
    ),
    (
      ['--target=cpu:6', '--config.mesh.data=4'],
      'choose sizes whose product is one',
    ),
    # A width of 128 over 6, and 4 heads over 8.
    (['--target=cpu:6'], 'hidden_size=128'),
    (['--target=cpu:8', '--config.mesh.tensor=8'], 'num_attention_heads=4'),
    (['--target=cpu:8', CUDNN], "config.model.dtype='bfloat16', not 'float32'"),
    (
      ['--target=cpu:8', CUDNN, '--config.model.dtype=bfloat16'],
      'needs an NVIDIA GPU',
    ),
    (['--target=cpu:8', '--config.mesh.tenso=2'], "config.mesh has no 'tenso'"),
    (['--target=cpu:8', '--config.mesh.data=0'], 'mesh.data=0 x mesh.tensor=1'),
    (['--target=cpu:8', '--device=h100'], 'leave it out with --target'),
    (
      ['--target=cpu:8', '--json=/nowhere/plan.json'],
      'there is no folder /nowhere',
    ),
    (['--config.mesh.tensor=two'], 'must be a whole number'),
    (['--nonsense'], "'nonsense'"),
    (['more'], "unexpected argument 'more'"),
    (['--device=abacus'], 'invalid choice'),
  ],
)
def test_bad_input_ends_before_anything_is_compiled(
  arguments, complaint, capsys, monkeypatch
):
  # What the process for a target would do, but for its devices.
  run = lambda args, **_: stubs.SimpleNamespace(
    returncode=command.main(args[3:])
  )
  monkeypatch.setattr(plan.subprocess, 'run', run)
  monkeypatch.setattr(report, 'compiled_plan', None)
  assert plan.main([TINY, *arguments]) == 2
  out, error = capsys.readouterr()
  assert complaint in error
  assert error.startswith('error: ') and error.count('\n') == 1
  assert not out


MODEL = ModelConfig(
  vocab_size=512,
  hidden_size=256,
  intermediate_size=512,
  num_hidden_layers=2,
  num_attention_heads=4,
  num_key_value_heads=2,
  head_dim=64,
  dtype='bfloat16',
  attention='cudnn',
)


@pytest.mark.parametrize(
  ('target', 'changes', 'complaint'),
  [
    ('a100:1x1x8', {}, ''),
    ('h100:1x2x8', {'head_dim': 256}, ''),
    (
      'a100:1x1x8',
      {'head_dim': 256},
      'needs head_dim a multiple of 8 up to 128',
    ),
    ('a100:1x1x8', {'dtype': 'float32'}, 'needs dtype bfloat16 or float16'),
    ('v5p:2x2x2', {}, 'needs an NVIDIA GPU, and --target=v5p:2x2x2 has none'),
  ],
)
def test_cudnn_is_checked_for_the_target(target, changes, complaint):
  from jaxagent.learner import LearnerConfig

  parts = Parts(MODEL.replace(**changes), None, LearnerConfig(), 64, 64, 0)
  if not complaint:
    command.check_attention(targets.parse(target), parts)
    return
  with pytest.raises(ValueError, match=complaint):
    command.check_attention(targets.parse(target), parts)


def test_cudnn_is_refused_before_ampere(monkeypatch):
  from jaxagent.learner import LearnerConfig

  old = gpus.Gpu(**(vars(gpus.GPUS['a100']) | {'capability': (7, 5)}))
  monkeypatch.setitem(gpus.GPUS, 'a100', old)
  parts = Parts(MODEL, None, LearnerConfig(), 64, 64, 0)
  with pytest.raises(ValueError, match='needs Ampere'):
    command.check_attention(targets.parse('a100:1x1x8'), parts)


@pytest.mark.parametrize('slots', (0, 2))
def test_merged_kernels_are_alive_whatever_samples(slots):
  from jaxagent.compiled import programs, sampling
  from jaxagent.devices import sharding
  from jaxagent.learner import LearnerConfig

  options = {'lora_rank': 2, 'lora_targets': ('q', 'down'), 'attention': 'xla'}
  model = MODEL.replace(**options)
  parts = Parts(model, None, LearnerConfig(row_tokens=(64,)), 32, 32, slots)
  run = command.run_of(parts, {'data': 1, 'fsdp': 1, 'tensor': 1})
  learner = programs.Learner(run, sharding.make_mesh())
  sampler = sampling.Sampler(learner) if slots else None
  alive = report.roles(learner, sampler)
  assert alive['engine_weights'] == alive['frozen'] > 0
  sizes = {'data': 1, 'fsdp': 1, 'tensor': 1}
  said = command.heading('x', targets.parse('cpu:1'), run, sizes)
  assert 'SFT' not in said
  before = dataclasses.replace(
    run, options=LearnerConfig(row_tokens=(64,), full_sft=True)
  )
  said = command.heading('x', targets.parse('cpu:1'), before, sizes)
  assert 'SFT of all weights is not compiled' in said
  plain = command.run_of(
    Parts(**(vars(parts) | {'model': MODEL})), {'data': 1, 'fsdp': 1}
  )
  assert not plain.keeps_merged


def test_the_mesh_is_the_target_with_fsdp_as_what_is_left():
  found = command.mesh_of(
    targets.parse('h100:1x2x8'), {'data': 2, 'fsdp': 8, 'tensor': 4}
  )
  assert found == {'data': 2, 'fsdp': 2, 'tensor': 4}


def test_what_the_launchers_leave():
  gpu, tpu = targets.parse('a100:1x1x8'), targets.parse('v5p:2x2x2')
  room, why = targets.room_bytes(gpu, {})
  assert room == pytest.approx(0.6 * 80e9) and 'launchers' in why
  script = (ROOT / 'launch_scripts' / '_launch.sh').read_text()
  assert f'XLA_PYTHON_CLIENT_MEM_FRACTION:-{targets.LAUNCHED}}}' in script
  given = {'XLA_PYTHON_CLIENT_MEM_FRACTION': '0.9'}
  assert targets.room_bytes(gpu, given)[0] == pytest.approx(72e9)
  assert targets.room_bytes(tpu, given)[0] == pytest.approx(95e9 * 0.92)
  assert targets.room_bytes(targets.parse('cpu:8'), {})[0] is None


def test_the_environment_is_the_targets():
  base = {
    'XLA_FLAGS': '--a=1 --xla_force_host_platform_device_count=2',
    'X': 'y',
  }
  found = targets.environment(targets.parse('cpu:8'), base)
  flags = '--a=1 --xla_force_host_platform_device_count=8'
  assert (found['XLA_FLAGS'], found['JAX_PLATFORMS'], found['X']) == (
    flags,
    'cpu',
    'y',
  )
  found = targets.environment(targets.parse('v5e:2x4'), base)
  assert found['XLA_FLAGS'] == '--a=1' and found['TPU_SKIP_MDS_QUERY'] == '1'
