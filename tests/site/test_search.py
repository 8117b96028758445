"""The docs site in a real browser, from its folder, without a server."""

import pytest

from benchmarks import browser as browser_lib

api = pytest.importorskip(
  'playwright.sync_api', reason='needs pip install playwright'
)
pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(browser_lib.CHROMIUM is None, reason=browser_lib.MISSING),
]


def test_search_finds_a_page_and_nothing_is_asked_of_the_network(built):
  asked, faults = [], []
  with browser_lib.launched() as browser:
    page = browser.new_page(viewport={'width': 1300, 'height': 900})
    page.on('request', lambda request: asked.append(request.url))
    page.on('pageerror', lambda error: faults.append(str(error)))
    page.goto((built / 'glossary.html').as_uri())
    page.locator('.md-search__input').click()
    page.keyboard.type('quarantine', delay=30)
    found = page.locator('.md-search-result__link').first
    api.expect(found).to_be_visible(timeout=15_000)
    assert '.html' in found.get_attribute('href')
  assert not faults
  strange = [a for a in asked if not a.startswith(('file:', 'data:', 'blob:'))]
  assert asked and not strange
