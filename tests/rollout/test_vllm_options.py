"""What a server of vLLM is started with."""

import dataclasses

from jaxagent.rollout.engines.vllm_api import ServerOptions, launch_options

GIVEN = ServerOptions('bfloat16', 2048, 8, 'folder', cpu=False)


def _launched(devices='', **changes):
  options = dataclasses.replace(GIVEN, **changes)
  return launch_options('DIR', '127.0.0.1', 1, options, devices)


def test_nothing_is_asked_that_was_not_given():
  args, env = _launched()
  for name in (
    '--enforce-eager',
    '--gpu-memory-utilization',
    '--tensor-parallel-size',
  ):
    assert name not in args
  assert 'CUDA_VISIBLE_DEVICES' not in env


def test_table_3_of_paper_003():
  args, env = _launched(
    devices='0,1', gpu_memory_utilization=0.2, enforce_eager=True
  )
  text = ' '.join(args)
  assert '--tensor-parallel-size 2' in text and '--enforce-eager' in args
  assert '--gpu-memory-utilization 0.2' in text
  assert env['CUDA_VISIBLE_DEVICES'] == '0,1'


def test_the_cpu_has_options_of_its_own():
  args, _ = _launched(cpu=True, gpu_memory_utilization=0.2, enforce_eager=True)
  assert (
    args.count('--enforce-eager') == 1
    and '--gpu-memory-utilization' not in args
  )
