"""The browser that pages are opened in: the system's chromium, driven by Playwright."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

CHROMIUM = shutil.which('chromium') or shutil.which('chromium-browser')
MISSING = 'needs chromium: apt-get install chromium (launch_scripts/test.sh does, as root)'


@contextlib.contextmanager
def launched() -> Iterator[Any]:
  """Yields a headless browser. Raises FileNotFoundError where there is none."""
  from playwright.sync_api import sync_playwright

  if CHROMIUM is None:
    raise FileNotFoundError(MISSING)
  with sync_playwright() as playwright:
    browser = playwright.chromium.launch(
      executable_path=CHROMIUM, args=['--no-sandbox']
    )
    yield browser
    browser.close()
