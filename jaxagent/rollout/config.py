"""Options of sampling and of the scheduler that collects batches."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from jaxagent.data import chat
from jaxagent.envs import agents
from jaxagent.options import (
  Relation,
  Section,
  addresses,
  must,
  option,
  relation,
)
from jaxagent.rollout.records import ON_STALE, RESTS

ENGINES = ('native', 'vllm')
SYNCS = ('shared_memory', 'folder', 'nccl')
ADAPTERS = ('served', 'merged')


def _check_template_kwargs(key: str, value: dict[str, Any]) -> str:
  del key
  chat.check_template_kwargs(value)
  return ''


@dataclasses.dataclass(frozen=True)
class RolloutOptions(Section):
  """Options of prompting and sampling the policy.

  The policy is softmax(logits / temperature): in SFT, RL, evaluation and export.
  """

  engine: str = option(
    'native', choices=ENGINES, help='What draws completions.'
  )
  prompt_style: str = option(
    'compact', choices=agents.STYLES, help='How much a prompt shows.'
  )
  temperature: float = option(
    1.0,
    above=0,
    help='Temperature of the policy, wherever it is used.',
  )
  chat_template_kwargs: dict[str, Any] = option(
    {},
    help='What a chat template is rendered with; {}: nothing.',
    example="{'enable_thinking': False}",
    check=_check_template_kwargs,
    advanced=True,
  )
  stop: tuple[str, ...] = option(
    (),
    example='Observation:',
    help='Texts that end a response, as the end token does; (): none.',
    advanced=True,
  )
  max_prompt_tokens: int = option(
    256, unit='tokens', help='Longest prompt; a longer one is cut.'
  )
  max_new_tokens: int = option(192, unit='tokens', help='Longest response.')
  max_num_seqs: int = option(
    0,
    least=0,
    help='Completions of a role at once; 0: no limit (the native engine '
    'decodes 48).',
    advanced=True,
  )
  batch_invariant: bool = option(
    False,
    help='Log-probs to the last bit whatever is decoded beside; slower.',
    advanced=True,
  )

  relations = (
    relation(
      'temperature',
      'engine',
      holds=lambda heat, engine: engine != 'vllm' or heat >= 0.01,
      say='{at}temperature={temperature}: {at}engine={engine!r} raises anything '
      'lower to 0.01, log-probs included; give 0.01 or more, or engine=native.',
    ),
    relation(
      'batch_invariant',
      'engine',
      holds=lambda same, engine: not same or engine == 'native',
      say='{at}batch_invariant={batch_invariant} is for the native engine; vLLM '
      'has its own (VLLM_BATCH_INVARIANT). Set it to False, or '
      "{at}engine='native'.",
    ),
  )


@dataclasses.dataclass(frozen=True)
class VllmOptions(Section):
  """Servers of vLLM: started on this machine, or, with urls, given."""

  urls: tuple[str, ...] = option(
    (),
    example='http://127.0.0.1:8000',
    check=addresses,
    help='Servers that run already; (): start them here.',
    advanced=True,
  )
  python: str = option(
    '.venv-vllm/bin/python',
    is_path=True,
    help='Interpreter that has vLLM.',
    advanced=True,
  )
  servers: int = option(1, help='Servers started here.', advanced=True)
  devices: tuple[str, ...] = option(
    (), example='0,1', help="GPUs of each server: '4,5', '6,7'; (): any."
  )
  gpu_memory_utilization: float = option(
    0.0,
    least=0,
    below=1,
    help="Share of a GPU's memory that a server takes; 0: vLLM's choice.",
  )
  enforce_eager: bool = option(False, help='Use no CUDA graphs.')
  start_s: float = option(
    600.0, unit='s', above=0, help='Limit of a start.', advanced=True
  )
  sync: str = option(
    'shared_memory',
    choices=SYNCS,
    help='How new weights reach the servers.',
    advanced=True,
  )
  adapters: str = option(
    'served',
    choices=ADAPTERS,
    help='What servers get of a model with adapters (model.lora.rank): the base once '
    'and a folder of adapters for each version, or all weights, merged.',
    advanced=True,
  )
  max_loras: int = option(
    0,
    least=0,
    help='Versions of adapters that a server holds at once; 0: 2 where rl.rest=wait, '
    'else rl.max_staleness + 2 and at least 3.',
    advanced=True,
  )
  shared_dir: str = option(
    '',
    is_path=True,
    check=must(lambda path: isinstance(path, str), "must be a folder, or ''."),
    help="Where weights lie for the servers; '': /dev/shm, or the work "
    'directory.',
    advanced=True,
  )
  max_gap_nats: float = option(
    0.0,
    unit='nats',
    least=0,
    help='Allowed between log-probs of a fixed request there and here, after '
    'each update; 0: 0.001 in float32, 0.2 in bfloat16.',
    advanced=True,
  )

  relations = (
    relation(
      'devices',
      'servers',
      holds=lambda devices, servers: len(devices) in (0, servers),
      say='{at}devices={devices!r} names GPUs for each server, but '
      '{at}servers={servers}.',
    ),
    relation(
      'max_loras',
      'adapters',
      holds=lambda most, kind: most != 1 or kind == 'merged',
      say='{at}max_loras={max_loras}: requests of two versions are under way while '
      'weights change; give 2 or more, or 0.',
    ),
    relation(
      'sync',
      'devices',
      'urls',
      holds=lambda sync, devices, urls: sync != 'nccl' or devices or urls,
      say='{at}sync={sync!r} needs GPUs that the trainer does not use: name '
      'them in {at}devices, or give servers in {at}urls.',
    ),
  )


@dataclasses.dataclass(frozen=True)
class SchedulerOptions(Section):
  """Options of collecting batches, part of section `rl`; see `SchedulerConfig`."""

  batch_size: int = option(32, unit='samples', help='Samples of one update.')
  group_size: int = option(1, unit='samples', help='Samples of one prompt.')
  oversample: float = option(
    1.25,
    least=1,
    help='Samples dispatched for each one consumed; with rest=wait always 1.',
  )
  rest: str = option(
    'carry_over',
    choices=RESTS,
    help='What becomes of samples that have not finished when a batch has.',
  )
  max_staleness: int = option(
    1,
    unit='updates',
    least=-1,
    help='How far sampling may run ahead of the learner; -1: no bound.',
    advanced=True,
  )
  on_stale: str = option(
    'keep',
    choices=ON_STALE,
    help='What becomes of a sample that is older: trained on, waited for, or '
    'discarded.',
    advanced=True,
  )
  max_concurrent_rollouts: int = option(
    0,
    least=0,
    help='Rollouts under way at once; 0: as many as sandboxes and their queue '
    'take, and max_num_seqs more.',
    advanced=True,
  )
  lease_s: float = option(
    150.0,
    unit='s',
    above=0,
    help='Limit of one attempt; after it the attempt is stopped and retried.',
  )
  watchdog_s: float = option(
    300.0,
    unit='s',
    above=0,
    help='The run ends with a diagnosis if nothing finishes for so long.',
  )

  relations: ClassVar[tuple[Relation, ...]] = (
    relation(
      'on_stale',
      'max_staleness',
      holds=lambda late, bound: late == 'keep' or bound >= 0,
      say='{at}on_stale={on_stale!r} is for samples beyond a bound, and '
      '{at}max_staleness={max_staleness} is none; set a bound of 0 or more, or '
      "'keep'.",
    ),
    relation(
      'batch_size',
      'group_size',
      holds=lambda batch, group: batch % group == 0,
      say='{at}batch_size={batch_size} does not divide by '
      '{at}group_size={group_size}; change one of them.',
    ),
    relation(
      'lease_s',
      'watchdog_s',
      holds=lambda lease, watchdog: lease < watchdog,
      say='{at}lease_s={lease_s} must be below {at}watchdog_s={watchdog_s}: '
      'deadlines nest (execution < step < lease < watchdog).',
    ),
  )
