"""Grading within limits of time and memory, in a process of its own."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import pathlib
import resource
from multiprocessing.connection import Connection

from jaxagent import graders
from jaxagent.graders import Grade, Scope

START_S = 120.0  # until a process is there, the first with its imports
# A server that runs no threads forks every grade, warm.
_PRELOAD = ['pandas', 'scipy.stats', 'sklearn.metrics', __name__]


def grade_files(
  competition: str,
  submission: str | pathlib.Path,
  answers: str | pathlib.Path,
  mode: str,
  *,
  timeout_s: float,
  memory_mb: int,
  scope: Scope = Scope(),
) -> Grade:
  """Grades within limits; a grade that passes one has a reason and no score.

  timeout_s: seconds of one grade. memory_mb: MiB of address space.
  Else it is graders.grade_files, whose ValueError and OSError it raises.
  """
  higher = graders.higher_is_better(competition, mode)
  context = multiprocessing.get_context('forkserver')
  context.set_forkserver_preload(_PRELOAD)
  ours, theirs = context.Pipe(duplex=False)
  arguments = (competition, str(submission), str(answers), mode, scope)
  process = context.Process(
    target=_grade, args=(theirs, memory_mb, arguments), daemon=True
  )
  process.start()
  theirs.close()
  with ours:
    try:
      answer = _answer(ours, timeout_s)
    except EOFError:
      process.join()
      return Grade(None, _ended(process.exitcode or 0, memory_mb), higher)
    finally:
      process.kill()
      process.join()
  if answer is None:
    reason = f'grading took longer than {timeout_s:g} s; see --timeout_s'
    return Grade(None, reason, higher)
  if 'error' in answer:
    kind = OSError if answer['is_os_error'] else ValueError
    raise kind(answer['error'])
  return Grade(**answer)


def _answer(pipe, timeout_s: float) -> dict | None:
  """Returns the process's answer; None if it took too long."""
  if not pipe.poll(START_S):
    return None
  pipe.recv_bytes()  # it has begun
  return json.loads(pipe.recv_bytes()) if pipe.poll(timeout_s) else None


def _ended(code: int, memory_mb: int) -> str:
  return (
    f'grading needed more than {memory_mb} MiB or broke down (exit code '
    f'{code}); see --memory_mb'
  )


def _grade(pipe: Connection, memory_mb: int, arguments: tuple) -> None:
  """The process: sends a beginning, then a Grade or an error as JSON."""
  limit = memory_mb << 20
  resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
  resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
  pipe.send_bytes(b'')
  try:
    answer = dataclasses.asdict(graders.grade_files(*arguments))
  except MemoryError:
    return  # an end without an answer
  except (ValueError, OSError) as error:
    answer = {'error': str(error), 'is_os_error': isinstance(error, OSError)}
  pipe.send_bytes(json.dumps(answer).encode())
