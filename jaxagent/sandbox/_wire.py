"""Frames between the pool, the launcher and a job's supervisor.

A frame is 8 bytes of length, a JSON header, then the blobs whose sizes the
header lists. JSON and raw bytes only: nothing here is ever unpickled.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, Protocol

from jaxagent.sandbox._changed import File

MAX_HEADER = 64 << 20


class Stream(Protocol):
  """The part of a socket that frames need."""

  def recv(self, size: int, /) -> bytes: ...

  def sendall(self, data: bytes, /) -> None: ...


def send(
  sock: Stream,
  header: dict[str, Any],
  blobs: Sequence[bytes | File] = (),
) -> None:
  """blobs: each bytes, or a file that gives its `parts` while it is sent."""
  header = {**header, 'blobs': [len(b) for b in blobs]}
  text = json.dumps(header).encode()
  sock.sendall(struct.pack('>Q', len(text)) + text)
  for blob in blobs:
    for part in blob.parts() if hasattr(blob, 'parts') else (blob,):
      sock.sendall(part)


def _exactly(sock: Stream, size: int) -> bytes:
  parts = []
  while size:
    part = sock.recv(min(size, 1 << 20))
    if not part:
      raise EOFError('the other side closed the connection.')
    parts.append(part)
    size -= len(part)
  return b''.join(parts)


def receive(sock: Stream) -> tuple[dict[str, Any], list[bytes]]:
  """Returns (header, blobs). Raises EOFError where the peer has gone."""
  (size,) = struct.unpack('>Q', _exactly(sock, 8))
  if size > MAX_HEADER:
    raise EOFError(f'a frame header of {size} bytes is refused.')
  header = json.loads(_exactly(sock, size))
  return header, [_exactly(sock, n) for n in header.pop('blobs')]
