"""Runs the attack suite against a live pool; no test framework needed."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import tempfile
import uuid
from collections.abc import Iterator
from typing import Any

from jaxagent.sandbox import attacks, errors
from jaxagent.types import Execution, Job


@contextlib.contextmanager
def bait() -> Iterator[tuple[str, ...]]:
  """Plants the canary, a secret in our environment and an open port."""
  token = 'canary' + uuid.uuid4().hex
  with (
    tempfile.TemporaryDirectory() as folder,
    socket.socket() as listener,
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mailbox,
  ):
    path = pathlib.Path(folder) / 'labels.csv'
    path.write_text(token)
    listener.bind(('127.0.0.1', 0))
    listener.listen()
    mailbox.bind(listener.getsockname())
    os.environ['JAXAGENT_CANARY'] = token
    try:
      yield (
        str(path),
        token[:10],
        token[10:],
        str(listener.getsockname()[1]),
        str(os.getpid()),
      )
    finally:
      del os.environ['JAXAGENT_CANARY']


def make_job(case: attacks.Case, argv: tuple[str, ...]) -> Job:
  return Job(
    'attack-' + uuid.uuid4().hex[:10],
    'main.py',
    files={'main.py': attacks.PRELUDE + case.script},
    argv=argv,
    collect=(*case.collect, 'won') if not case.collect else case.collect,
    limits=case.limits,
    zygote=case.zygote,
  )


def applies(case: attacks.Case, tier: str) -> bool:
  return errors.tier_number(tier) >= errors.tier_number(case.tier)


def verdict(case: attacks.Case, result: Execution) -> str:
  """'' where the attack was contained, else what happened."""
  won = result.collected.get('won')
  if won is not None:
    return f'it won: {won.decode(errors="replace")}'
  outcome = result.outcome
  if not case.collect and outcome.value == 'no_submission':
    outcome = type(outcome).OK  # `won` is the file that must be missing
  if outcome not in case.expect:
    wanted = '/'.join(o.value for o in case.expect)
    return (
      f'{outcome.value} instead of {wanted}: {result.message} '
      f'{result.output[-300:]}'
    )
  return case.check(result)


def run(
  pool: Any, argv: tuple[str, ...]
) -> list[tuple[attacks.Case, str, float]]:
  """[(case, '' or what is wrong, seconds)] of every case of the tier."""
  chosen = [c for c in attacks.CASES if applies(c, pool.tier)]
  futures = [pool.submit(make_job(c, argv)) for c in chosen]
  rows = []
  for case, future in zip(chosen, futures):
    result = future.result()
    rows.append((case, verdict(case, result), result.exec_s))
  return rows


def table(tier: str, rows: Any) -> str:
  """A Markdown table, one row per group, failures listed below it."""
  lines = [f'Tier {tier}', '', '| group | attacks | contained |', '|-|-|-|']
  for group in dict.fromkeys(c.group for c, _, _ in rows):
    part = [bad for c, bad, _ in rows if c.group == group]
    lines.append(f'| {group} | {len(part)} | {part.count("")} |')
  total = [bad for _, bad, _ in rows]
  lines.append(f'| all | {len(total)} | {total.count("")} |')
  for case, bad, _ in rows:
    if bad:
      lines.append(f'- NOT CONTAINED: {case.name}: {bad}')
  return '\n'.join(lines)
