"""Addresses of an endpoint, and texts of its answers and errors."""

from __future__ import annotations

import ipaddress
import json
from typing import Any

import httpx


def checked_url(base_url: str) -> tuple[str, bool]:
  """Returns (URL without a slash at the end, is it this machine).

  Raises ValueError where it is no address, or holds a secret.
  """
  try:
    url = httpx.URL(base_url or '')
  except (httpx.InvalidURL, TypeError):
    url = httpx.URL('')
  if url.userinfo or url.query:
    raise ValueError(
      'base_url holds a user name or a query: keep secrets out of it and '
      'give the key by the environment.'
    )
  if url.scheme not in ('http', 'https') or not url.host:
    raise ValueError(
      f'base_url={base_url!r} must be an http or https address such as '
      "'http://127.0.0.1:8000/v1'."
    )
  try:
    loopback = ipaddress.ip_address(url.host).is_loopback
  except ValueError:
    loopback = url.host == 'localhost'
  return str(url).rstrip('/'), loopback


def encodable(text: str) -> str:
  """Replaces half characters, which a JSON escape can make and UTF-8 has not."""
  return text.encode('utf-8', 'replace').decode()


def without(text: str, key: str) -> str:
  """Returns a text in which an API key does not stand."""
  return text.replace(key, '[key]') if key else text


def shown(data: bytes) -> str:
  """Returns the start of an answer, on one line."""
  return ' '.join(data[:2000].decode('utf-8', 'replace').split())[:200]


def told(answer: Any, key: str) -> str:
  """Returns the start of a JSON value that is no answer."""
  try:
    return without(shown(json.dumps(answer).encode()), key)
  except RecursionError:
    return 'lists within lists'


def error_text(data: bytes) -> str:
  """Returns the message of an error answer, its start where it has none."""
  try:
    error = json.loads(data)['error']
    said = error['message'] if isinstance(error, dict) else error
    return ' '.join(str(said).split())[:300]
  except (ValueError, KeyError, TypeError, RecursionError):
    return shown(data)


def seconds(text: str | None) -> float | None:
  """Reads Retry-After, in seconds; None for its form with a date."""
  try:
    value = float(text or '')
  except ValueError:
    return None
  return value if 0 <= value < float('inf') else None
