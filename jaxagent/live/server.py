"""Answers of the live page: its files, and JSON of what runs wrote. Read-only."""

from __future__ import annotations

import ipaddress
import json
import pathlib
import socket
from collections.abc import Callable, Iterable
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jaxagent.live import detail, values
from jaxagent.live.found import Runs
from jaxagent.live.rollouts import Filter
from jaxagent.live.run import Run
from jaxagent.report import page as report

STATIC = pathlib.Path(__file__).parent / 'static'
PAGE = 50  # rows of a list, unless asked otherwise
MOST_ROWS = 500
MOST_SPANS = 4_000
MOST_POINTS = 1_000
MOST_MEMBERS = 32  # of a group, side by side
_KINDS = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
}
HEADERS = {
  'content-security-policy': (
    "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
  ),
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'cache-control': 'no-store',
}


class NotThere(LookupError):
  """A run or rollout that there is not; the message says which."""


class BadQuestion(ValueError):
  """A parameter that is not understood; the message says which."""


def app(root: pathlib.Path, host: str = '127.0.0.1') -> ASGIApp:
  """Returns the application that serves the runs below a folder.

  host: that it listens on; requests for other hosts are refused (`Guard`).
  """
  runs = Runs(root)

  def of_run(answer: Callable[[Run, Request], Any]) -> Route:
    def asked(request: Request) -> Any:
      name = request.query_params.get('run', '')
      run = runs.get(name)
      if run is None:
        raise NotThere(f'no run {name[:200]!r} below {root}')
      return answer(run, request)

    return _route(f'/api{_PATHS[answer]}', asked)

  files = {p.name: p for p in STATIC.iterdir() if p.suffix in _KINDS}
  routes = [
    Route('/', _file(STATIC / 'index.html')),
    Route('/static/report.css', _file(report.STYLE, 'text/css')),
    *(Route(f'/static/{name}', _file(p)) for name, p in files.items()),
    _route('/api/runs', lambda request: runs.listed()),
    *(of_run(answer) for answer in _PATHS),
  ]
  return Guard(Starlette(routes=routes), host)


class Guard:
  """Refuses requests for other hosts, and adds the headers of HEADERS to answers.

  A page of another site can let its name point here (DNS rebinding); its requests
  carry that name. Only names of this server are answered: localhost, 127.0.0.1, ::1,
  and `host`; where that is all interfaces, any address and the machine's name.
  """

  def __init__(self, inner: ASGIApp, host: str):
    self._inner = inner
    self._names = {'localhost', '127.0.0.1', '::1', host.lower()}
    self._any = host in ('0.0.0.0', '::')
    if self._any:
      self._names.add(socket.gethostname().lower())

  async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
    if scope['type'] != 'http':
      return

    async def sent(message: Message) -> None:
      if message['type'] == 'http.response.start':
        own = [(k.encode(), v.encode()) for k, v in HEADERS.items()]
        message['headers'] = [*message.get('headers', ()), *own]
      await send(message)

    given = [v for k, v in scope['headers'] if k == b'host']
    if len(given) != 1 or not self._admits(given[0].decode('latin-1')):
      refused = Response('this host name is not served here\n', 421)
      await refused(scope, receive, sent)
    else:
      await self._inner(scope, receive, sent)

  def _admits(self, host: str) -> bool:
    name = host.strip().lower()
    if name.startswith('['):
      name = name[1:].partition(']')[0]
    elif name.count(':') == 1:
      name = name.partition(':')[0]
    if name in self._names:
      return True
    return self._any and _is_address(name)


def _is_address(name: str) -> bool:
  try:
    ipaddress.ip_address(name)
  except ValueError:
    return False
  return True


# What is asked of a run ---------------------------------------------------------


def _state(run: Run, request: Request) -> Any:
  return run.state() | {'facts': run.facts()}


def _rollouts(run: Run, request: Request) -> Any:
  ask = request.query_params
  wanted = Filter(
    task=ask.get('task', ''),
    outcome=ask.get('outcome', ''),
    fate=ask.get('fate', ''),
    group=ask.get('group', ''),
    update=_int(request, 'update', None),
    text=ask.get('text', '')[:200],
  )
  offset = _int(request, 'offset', 0) or 0
  limit = _int(request, 'limit', PAGE) or PAGE
  return run.page(wanted, max(0, offset), max(1, min(limit, MOST_ROWS)))


def _rollout(run: Run, request: Request) -> Any:
  """Answers with a rollout and, with `group`, all of its group."""
  asked = request.query_params.get('id', '')
  prompt, _, restart = asked.rpartition('~')
  try:
    key = prompt, int(restart)
  except ValueError:
    key = prompt, -1
  with run.lock:
    shown = run.shown
    row = shown.by_key.get(key)
    if row is None:
      raise NotThere(f'no rollout {asked[:200]!r} in run {run.name}')
    members = [row]
    if request.query_params.get('group') and row.group:
      wanted = Filter(group=row.group)
      members = sorted(
        shown.newest(wanted), key=lambda one: (one.prompt_id, one.restart)
      )[:MOST_MEMBERS]
    return {'rollouts': [detail.of_row(shown, one) for one in members]}


def _curves(run: Run, request: Request) -> Any:
  """Answers with the panels that have data, and any other metrics asked for."""
  more = request.query_params.getlist('name')[:20]
  with run.lock:
    made = [
      {'stage': stage, 'title': title, 'note': note, 'lines': lines}
      for stage, curves, panels in (
        ('rl', run.curves, report.PANELS),
        ('sft', run.sft, report.SFT_PANELS),
      )
      for title, note, names in panels
      if (lines := [[k, label] for k, label in names if k in curves.columns])
    ]
    shown = {key for panel in made for key, _ in panel['lines']} | {*more}
    return {
      'panels': made,
      'names': sorted(run.curves.columns),
      'rl': run.curves.drawn(sorted(shown), MOST_POINTS),
      'sft': run.sft.drawn(sorted(shown), MOST_POINTS),
    }


def _lanes(run: Run, request: Request) -> Any:
  ask = request.query_params
  begin, end, seconds = (
    _float(ask.get(n)) for n in ('begin', 'end', 'seconds')
  )
  return run.lanes(begin, end, seconds or 120.0, MOST_SPANS)


_PATHS: dict[Callable[[Run, Request], Any], str] = {
  _state: '/state',
  _rollouts: '/rollouts',
  _rollout: '/rollout',
  _curves: '/curves',
  _lanes: '/lanes',
}


def _int(request: Request, name: str, default: int | None) -> int | None:
  value = request.query_params.get(name, '')
  if not value:
    return default
  try:
    return int(value[:20])
  except ValueError:
    raise BadQuestion(f'{name}={value[:40]!r} must be a whole number') from None


def _float(given: str | None) -> float | None:
  """Returns a time or seconds; None where none is given."""
  if not given:
    return None
  try:
    found = values.number(float(given))
  except ValueError:
    found = None
  if found is None:
    raise BadQuestion('begin, end and seconds must be numbers')
  return found


def _route(path: str, answer: Callable[[Request], Any]) -> Route:
  async def endpoint(request: Request) -> Response:
    try:
      found, status = await run_in_threadpool(answer, request), 200
    except NotThere as error:
      found, status = {'error': str(error)}, 404
    except BadQuestion as error:
      found, status = {'error': str(error)}, 400
    # ASCII: whatever stood in a file, an answer can be encoded.
    text = json.dumps(found, allow_nan=False, separators=(',', ':'))
    return Response(text, status, media_type='application/json')

  return Route(path, endpoint, methods=['GET'])


def _file(path: pathlib.Path, kind: str = '') -> Callable[[Request], Any]:
  async def endpoint(request: Request) -> Response:
    media_type = kind or _KINDS[path.suffix]
    return Response(path.read_bytes(), media_type=media_type)

  return endpoint


def urls(host: str, port: int) -> Iterable[str]:
  """Yields addresses under which the page is reached."""
  if host in ('0.0.0.0', '::', ''):
    yield f'http://127.0.0.1:{port}/'
    yield f'http://{socket.gethostname()}:{port}/'
  else:
    yield f'http://{f"[{host}]" if ":" in host else host}:{port}/'
