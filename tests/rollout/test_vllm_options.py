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
    '--enable-lora',
  ):
    assert name not in args
  assert 'CUDA_VISIBLE_DEVICES' not in env


def test_a_server_of_adapters_is_started_for_the_next_rank_that_it_knows():
  for rank, most in ((8, '8'), (12, '16'), (257, '320')):
    args, env = _launched(lora_rank=rank, max_loras=3)
    assert args[args.index('--max-lora-rank') + 1] == most
    assert args[args.index('--max-loras') + 1] == '3'
    assert env['VLLM_ALLOW_RUNTIME_LORA_UPDATING'] == '1'


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
  assert args[args.index('--block-size') + 1] == '32'
  assert '--block-size' not in _launched()[0]
  assert (
    args.count('--enforce-eager') == 1
    and '--gpu-memory-utilization' not in args
  )
