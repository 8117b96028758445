"""Seconds of 128 ideas against a slow endpoint, over those of the slowest idea alone.

  python -m benchmarks.ideator_rate [--ideas 128] [--json]

Rollouts of one idea as the recipe has them (`recipes/ideator`): an answer of the
Ideator, here at once and the same for all, one message of an Implementer behind an
OpenAI-compatible endpoint on the loopback, which takes 1 to 30 s (by the rank of the
request), and one execution, here 0.5 s of waiting. All ideas are in flight at once
(`implementer.max_concurrency`, `sandbox.slots`), so that the whole takes as long as
its slowest member; what is above that is the scheduler's, the journal's and the
client's. The slowest idea alone is measured first.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import pathlib
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks import machine
from configs import common
from jaxagent import types
from jaxagent.data.prompts import Feed
from jaxagent.envs.agents.implementer import SEEK_HELP, Query, Turn, write_turn
from jaxagent.envs.implementer_state import (
  Effect,
  ImplementerState,
  PastTurn,
  Program,
)
from jaxagent.interactions import POLICY
from jaxagent.recipes.ideator import roles
from jaxagent.recipes.ideator.interaction import (
  IMPLEMENTER,
  HelpState,
  Ideas,
)
from jaxagent.recipes.ideator.parser import Idea, write_idea
from jaxagent.rollout.requests import ExecutionRequest, GenerationRequest
from jaxagent.rollout.thread_sampler import FrozenRole
from jaxagent.runtime.stop import StopFlag
from jaxagent.training import rollouts

NAME = 'ideator_rate'
FASTEST_S, SLOWEST_S, EXECUTION_S = 1.0, 30.0, 0.5
ANSWER = write_turn(Turn('ipython', code='print(1)'))
IDEA = write_idea(Idea('It underfits.', 'Use a deeper tree.', 'Depth helps.'))


@contextlib.contextmanager
def served(delays: Sequence[float]) -> Iterator[str]:
  """Serves chat completions on the loopback; the n-th takes the n-th delay."""
  waiting = iter(delays)
  loop = asyncio.new_event_loop()

  async def answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
  ) -> None:
    with contextlib.suppress(
      ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError
    ):
      while True:
        head = (await reader.readuntil(b'\r\n\r\n')).decode().lower()
        length = int(head.split('content-length:')[1].split('\r\n')[0])
        await reader.readexactly(length)
        await asyncio.sleep(next(waiting, FASTEST_S))
        choice = {
          'index': 0,
          'message': {'role': 'assistant', 'content': ANSWER},
          'finish_reason': 'stop',
        }
        body = json.dumps({'choices': [choice]}).encode()
        writer.write(
          b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n'
          + f'Content-Length: {len(body)}\r\n\r\n'.encode()
          + body
        )
        await writer.drain()
    writer.close()

  server = loop.run_until_complete(
    asyncio.start_server(answer, '127.0.0.1', 0, backlog=512)
  )
  thread = threading.Thread(target=loop.run_forever, daemon=True)
  thread.start()
  try:
    port = server.sockets[0].getsockname()[1]
    yield f'http://127.0.0.1:{port}/v1'
  finally:
    server.close()
    asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def _cancel_all() -> None:
  """Ends the connections that are still open."""
  open_ones = asyncio.all_tasks() - {asyncio.current_task()}
  for task in open_ones:
    task.cancel()
  await asyncio.gather(*open_ones, return_exceptions=True)


def seconds(delays: Sequence[float], work: pathlib.Path) -> float:
  """Returns the seconds of as many ideas as there are delays, all at once."""
  with served(delays) as url:
    config = common.base('ideator')
    config.implementer.kind, config.implementer.model = 'openai', 'any'
    config.implementer.base_url = url
    config.implementer.max_concurrency = len(delays)
    config.sandbox.slots = len(delays)
    spec = SimpleNamespace(
      details=None,
      name='task',
      research_problem='',
      submission='submission.csv',
    )
    host = SimpleNamespace(
      config=config,
      work=work,
      stop=StopFlag(),
      pool=SimpleNamespace(cancel=lambda key: None),
      prepared={'task': SimpleNamespace(mounts={})},
      spec=lambda task: spec,
    )
    feed, ended = Feed(), []
    for number in range(len(delays)):
      feed.push(f'idea-{number}', _state(number))
    began = time.monotonic()
    rollouts.run(
      host,  # type: ignore[arg-type]
      work / 'journal',
      rollouts.RolloutStage(
        'rate',
        feed,
        Ideas(lambda item: np.ones(1, np.int32), lambda completion: IDEA),
        execute=_wait,
        deliver=lambda prompt, progress, error: ended.append(error),
        frozen={
          POLICY: FrozenRole(_drawn, len(delays)),
          IMPLEMENTER: roles.implementer(host),  # type: ignore[arg-type]
        },
      ),
    )
    took = time.monotonic() - began
  if ended != [''] * len(delays):
    raise RuntimeError(f'not every idea was carried out: {set(ended)}')
  return took


def _drawn(ask: GenerationRequest) -> types.Completion:
  """Returns the policy's completion, whose text is IDEA."""
  ids = np.ones(1, np.int32)
  return types.Completion(
    str(ask.key), ids, ids, np.zeros(1, np.float32), ((0, 0, 1),), 'stop'
  )


def _state(number: int) -> HelpState:
  """Returns a state with a question; each prompt differs, so that none is cached."""
  query = Query(f'Try {number} failed.', 'a model', 'a better score')
  text = write_turn(Turn(SEEK_HELP, query=query))
  state = ImplementerState('task', True, {}).with_step(SEEK_HELP, text)
  return HelpState(f'state-{number}', 'run', state)


def _wait(work: ExecutionRequest, job_id: str) -> types.Executed:
  time.sleep(EXECUTION_S)
  request = work.call.request
  step = PastTurn('ipython', request.text, 'Status: ok', score=0.5)
  effect = Effect(step, program=Program('ipython', request.turn.code))
  return types.Executed(types.Outcome.OK, EXECUTION_S, state=effect.to_json())


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('--ideas', type=int, default=128)
  parser.add_argument('--json', action='store_true', help='save the result')
  args = parser.parse_args()
  delays = np.linspace(FASTEST_S, SLOWEST_S, args.ideas).tolist()
  with tempfile.TemporaryDirectory(prefix='ideator-rate-') as folder:
    work = pathlib.Path(folder)
    alone = seconds([SLOWEST_S], work / 'alone')
    together = seconds(delays, work / 'together')
  result: dict[str, Any] = {
    'ideas': args.ideas,
    'slowest_alone_s': round(alone, 2),
    'together_s': round(together, 2),
    'ratio': round(together / alone, 3),
  }
  print(json.dumps(result))
  if args.json:
    path = machine.RESULTS / f'{NAME}.json'
    whole = {'machine': machine.describe(), **result}
    path.write_text(json.dumps(whole, indent=2) + '\n')


if __name__ == '__main__':
  main()
