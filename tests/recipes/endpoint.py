"""An OpenAI-compatible server on the loopback, for runs as a user starts them."""

from __future__ import annotations

import contextlib
import http.server
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

Answer = Callable[[dict[str, Any], int], dict[str, Any] | None]


@contextlib.contextmanager
def serving(answer: Answer) -> Iterator[tuple[str, list[dict[str, Any]]]]:
  """(address, bodies that it was asked, in order).

  answer: (body, how many came before) -> the JSON of a 200; None: a 400.
  """
  asked: list[dict[str, Any]] = []
  numbers = itertools.count()

  class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
      body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
      asked.append(body)
      found = answer(body, next(numbers))
      if found is None:
        self.send_error(400, 'not today')
        return
      data = json.dumps(found).encode()
      self.send_response(200)
      self.send_header('Content-Type', 'application/json')
      self.send_header('Content-Length', str(len(data)))
      self.end_headers()
      self.wfile.write(data)

    def log_message(self, *args):
      pass

  server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
  thread = threading.Thread(target=server.serve_forever)
  thread.start()
  try:
    yield f'http://127.0.0.1:{server.server_port}/v1', asked
  finally:
    server.shutdown()
    server.server_close()
    thread.join()
