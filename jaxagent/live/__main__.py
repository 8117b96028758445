"""Serves a page of every run below a folder, while they go and afterwards.

  python -m jaxagent.live DIR [--port 8765] [--host 127.0.0.1]

Reads files and writes none: a run neither waits for it nor knows of it. DIR may hold
runs, be one, or not be there yet. Exits with 2 where it cannot serve.
"""

from __future__ import annotations

import argparse
import errno
import os
import pathlib
import socket
import sys
from collections.abc import Sequence

PORT = 8765
_NICE = 5  # a run on the same machine comes first


def main(argv: Sequence[str] | None = None) -> int:
  """Command line; returns the exit status, once the server is stopped."""
  arguments = _parser().parse_args(argv)
  try:
    import uvicorn

    from jaxagent.live import server
  except ModuleNotFoundError as error:
    if error.name not in ('uvicorn', 'starlette'):
      raise
    return _refuse(
      f"the live page needs {error.name}: pip install 'jaxagent[live]'"
    )
  root: pathlib.Path = arguments.dir.absolute()
  # Not Path.exists, which raises where there is no permission.
  if os.path.exists(root) and not os.path.isdir(root):
    return _refuse(f'{root} is no folder; give a folder of runs, or a run.')
  host, port = arguments.host, arguments.port
  try:
    listening = _listen(host, port)
  except (OSError, UnicodeError) as error:  # UnicodeError: no host's name
    return _refuse(_why(host, port, error))
  if hasattr(os, 'nice'):
    os.nice(_NICE)
  for url in server.urls(host, listening.getsockname()[1]):
    print(f'live page of {root}: {url}', flush=True)
  options = uvicorn.Config(
    server.app(root, host),
    log_level='error',
    access_log=False,
    server_header=False,
    lifespan='off',
    ws='none',
    timeout_graceful_shutdown=1,
    limit_concurrency=200,
  )
  try:
    uvicorn.Server(options).run(sockets=[listening])
  except KeyboardInterrupt:
    pass
  return 0


def _listen(host: str, port: int) -> socket.socket:
  """Returns a bound socket; raises OSError."""
  found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
  family, kind, protocol, _, address = found[0]
  made = socket.socket(family, kind, protocol)
  try:
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(address)
    made.listen(128)  # else who comes first at a shared port is not told
  except OSError:
    made.close()
    raise
  return made


def _why(host: str, port: int, error: OSError | UnicodeError) -> str:
  if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
    return (
      f'port {port} of {host} is taken; give another with --port (0: any that is '
      'free).'
    )
  why = error.strerror if isinstance(error, OSError) else 'no name of a host'
  return (
    f'cannot listen on {host}, port {port}: {why or error}; give others with '
    '--host and --port.'
  )


def _refuse(text: str) -> int:
  print(f'error: {text}', file=sys.stderr)
  return 2


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog='python -m jaxagent.live', description=__doc__.split('\n')[0]
  )
  parser.add_argument(
    'dir', type=pathlib.Path, help='a folder of runs, or a run'
  )
  parser.add_argument(
    '--port', type=_port, default=PORT, help=f'{PORT}; 0: any that is free'
  )
  parser.add_argument(
    '--host',
    default='127.0.0.1',
    help='127.0.0.1: this machine alone. Whoever reaches another address reads all '
    'runs below DIR',
  )
  return parser


def _port(text: str) -> int:
  if not text.isdigit() or int(text) > 65535:
    raise argparse.ArgumentTypeError(f'{text!r} must be 0 to 65535')
  return int(text)


if __name__ == '__main__':
  sys.exit(main())
