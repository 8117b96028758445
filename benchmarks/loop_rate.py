"""Tokens a second of the native engine in the loop of RL, over the engine alone.

  python -m benchmarks.loop_rate [--json]

The same requests twice (`benchmarks.decode`'s, 3.5M parameters, n = 8): all handed
to the engine at once, and drawn by the scheduler in its default setting, with
journal, executions that take no time, a batch of 128 an update, and new weights
after each. What the loop costs the engine shows; the learner and the executions,
which share its processor in a real run, do not. Completions are counted where the
engine gives them, without the first and the last 128; `repeats` times in turn, the
median counts.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import decode, machine
from jaxagent.clock import RealClock
from jaxagent.data.prompts import PromptSource
from jaxagent.interactions import Call, Credit, Execute, Generate, Transition
from jaxagent.models import init_decoder
from jaxagent.rollout.engine_sampler import EngineSampler
from jaxagent.rollout.engines.native_engine import NativeEngine, Shapes
from jaxagent.rollout.journal import Journal
from jaxagent.rollout.records import SchedulerConfig
from jaxagent.rollout.requests import (
  ExecutionRequest,
  GenerationRequest,
  Workers,
)
from jaxagent.rollout.result_queue import JournalledQueue
from jaxagent.rollout.scheduler import Scheduler
from jaxagent.rollout.thread_executor import ThreadExecutor
from jaxagent.types import Completion, Executed, Outcome, Request, Sampling

SIZE, BATCH, UPDATES, SAMPLES = '3.5M', 128, 8, 8
# Prompts with the tokens wanted of each sample: one epoch is all updates.
Pool = list[tuple[np.ndarray, list[int]]]


class Once:
  """A completion of the payload's prompt, and an execution."""

  def start(self, payload: Any) -> Transition:
    return Transition(None, (Generate(0, payload[0]),))

  def advance(self, state: Any, call: Call, result: Any) -> Transition:
    if isinstance(call, Generate):
      return Transition(None, (Execute(1, None),))
    return Transition(
      None, credits={0: Credit(1.0, result.exec_s, result.outcome)}
    )


class Meter:
  """An engine whose completions are timed."""

  def __init__(self, engine: NativeEngine):
    self._engine = engine
    self.given: list[tuple[float, int]] = []

  def submit(self, requests: Sequence[Request], put: Callable) -> None:
    def timed(result):
      if isinstance(result, Completion):
        self.given.append((time.monotonic(), len(result.token_ids)))
      put(result)

    self._engine.submit(requests, put=timed)

  def discard(self, request_ids: Sequence[str]) -> None:
    self._engine.discard(request_ids)

  def rate(self, of: int) -> float:
    """Tokens a second of the first `of` completions, both ends left out."""
    inner = sorted(self.given)[BATCH : of - BATCH]
    begun = sorted(self.given)[BATCH - 1][0]
    return sum(n for _, n in inner) / (inner[-1][0] - begun)


def prompts() -> Pool:
  work = decode.jobs(decode.MODELS[SIZE], SAMPLES, BATCH * UPDATES, seed=0)
  groups = [work[i : i + SAMPLES] for i in range(0, len(work), SAMPLES)]
  return [(group[0][0], [wanted for _, wanted in group]) for group in groups]


def request(name: str, prompt: np.ndarray, seed: int, wanted: int) -> Request:
  return Request(name, prompt, seed, Sampling(max_new_tokens=wanted))


def alone(engine: NativeEngine, params, pool: Pool) -> float:
  """Tokens a second."""
  engine.update_weights(params, 0)
  meter = Meter(engine)
  some = [
    request(f'{i}/{j}', prompt, SAMPLES * i + j, wanted)
    for i, (prompt, lengths) in enumerate(pool)
    for j, wanted in enumerate(lengths)
  ]
  meter.submit(some, put=lambda result: None)
  while len(meter.given) < len(some):
    time.sleep(0.01)
  return meter.rate(len(some))


def looped(engine: NativeEngine, params, pool: Pool) -> float:
  """Tokens a second."""
  meter = Meter(engine)

  def ask(ask: GenerationRequest) -> Request:
    prompt, lengths = ask.prompt.payload
    sample = int(ask.key.prompt_id.rsplit('/', 1)[1])
    seed = zlib.crc32(str(ask.key).encode())
    return request(str(ask.key), prompt, seed, lengths[sample])

  def execute(work: ExecutionRequest) -> Executed:
    return Executed(Outcome.OK, exec_s=1e-3)

  with tempfile.TemporaryDirectory() as folder:
    journal = Journal(folder)
    inbox = JournalledQueue(journal)
    scheduler = Scheduler(
      PromptSource(pool, group_size=SAMPLES),
      Once(),
      Workers(
        EngineSampler(inbox, meter, ask),  # type: ignore[arg-type]
        ThreadExecutor(inbox, execute, threads=4, lookahead=BATCH),
        inbox,
        RealClock(),
      ),
      SchedulerConfig(
        BATCH, group_size=SAMPLES, refill=BATCH // 4, max_decoding=BATCH
      ),
      journal=journal,
    )
    try:
      scheduler.resume(None)
      for version in range(UPDATES):
        engine.update_weights(params, version)
        batch = scheduler.next_batch(version)
        scheduler.mark_trained(batch.prompt_ids, version)
      given = len(meter.given)
    finally:
      scheduler.close()
      journal.close()
  return meter.rate(given)


def measure(repeats: int) -> dict[str, Any]:
  config = decode.MODELS[SIZE]
  graphdef, params = init_decoder(config, 0)
  engine = NativeEngine(
    graphdef,
    params,
    config,
    Shapes(
      batch_buckets=(1, 8, 16, 32, 64, BATCH), max_new_tokens=decode.LONGEST
    ),
  )
  pool = prompts()
  rates: dict[str, list[float]] = {'alone': [], 'in_the_loop': []}
  try:
    for repeat in range(repeats + 2):  # two to warm up
      for name, run in (('alone', alone), ('in_the_loop', looped)):
        rate = run(engine, params, pool)
        print(f'{name:12s} {rate:8.0f} tokens/s', flush=True)
        if repeat > 1:
          rates[name].append(rate)
  finally:
    engine.close()
  medians = {name: statistics.median(some) for name, some in rates.items()}
  return {
    'model': SIZE,
    **medians,
    'share': medians['in_the_loop'] / medians['alone'],
    'rates': rates,
  }


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--repeats', type=int, default=3)
  parser.add_argument('--json', action='store_true', help='save the result')
  args = parser.parse_args()
  result = measure(args.repeats)
  print(f'{result["share"]:.3f} of the engine alone')
  if args.json:
    print(machine.save('loop_rate', result))


if __name__ == '__main__':
  main()
