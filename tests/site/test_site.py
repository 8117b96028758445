"""The docs site builds without a warning, and needs nothing from elsewhere."""

from __future__ import annotations

import html.parser
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

import pytest

from tests.runs import ROOT

pytestmark = pytest.mark.slow
# What a page loads, rather than leads to.
LOADED = {'script': 'src', 'img': 'src', 'iframe': 'src', 'link': 'href'}


class _Links(html.parser.HTMLParser):
  """The addresses that a page leads to and that it loads."""

  def __init__(self, text):
    super().__init__()
    self.loaded, self.all = [], []
    self.feed(text)

  def handle_starttag(self, tag, attrs):
    given = dict(attrs)
    if LOADED.get(tag) in given:
      self.loaded.append(given[LOADED[tag]])
    self.all += [given[name] for name in ('href', 'src') if given.get(name)]


@pytest.fixture(scope='module')
def pages(built):
  found = {p: _Links(p.read_text()) for p in built.glob('*.html')}
  assert len(found) > 20
  return {p: links for p, links in found.items() if p.name != '404.html'}


def test_no_page_loads_anything_from_elsewhere(pages):
  for path, links in pages.items():
    assert links.loaded, path
    strange = [a for a in links.loaded if re.match(r'(\w+:)?//', a)]
    assert not strange, (path, strange)


def test_each_link_leads_to_a_file_of_the_site(built, pages):
  sources = set()
  for path, links in pages.items():
    for address in links.all:
      parts = urllib.parse.urlsplit(address)
      if parts.scheme or parts.netloc or not parts.path:
        continue
      file = built / urllib.parse.unquote(parts.path)
      assert file.exists(), (path.name, address)
      sources |= {parts.path} if parts.path.startswith('source/') else set()
  assert 'source/benchmarks/decode.py' in sources


def test_llms_txt_names_each_page_with_a_sentence_of_it(built, pages):
  text = (built / 'llms.txt').read_text()
  named = re.findall(r'^- \[.+?\]\((\S+)\): \S.*\.$', text, re.MULTILINE)
  assert sorted(named) == sorted(p.with_suffix('.md').name for p in pages)
  assert len(named) == text.count('\n- ')
  for name in named:
    assert (built / name).read_text().count('\n') > 3


def _copy(folder: pathlib.Path) -> pathlib.Path:
  for name in ('docs', 'benchmarks'):
    ignore = shutil.ignore_patterns('__pycache__', 'results')
    shutil.copytree(ROOT / name, folder / name, ignore=ignore)
  for name in ('mkdocs.yml', 'README.md', 'CONTRIBUTING.md'):
    shutil.copy(ROOT / name, folder)
  return folder


@pytest.mark.parametrize(
  'page, text, said',
  [
    ('docs/live.md', '[x](none.md)', 'none.md'),
    ('docs/live.md', '[x](../jaxagent/none.py)', 'none.py'),
    ('docs/live.md', '[x](sandbox.md#no-such-heading)', 'no-such-heading'),
    ('README.md', '[x](benchmarks/none.py)', 'none.py'),
    ('docs/forgotten.md', '# In no navigation', 'forgotten.md'),
  ],
)
def test_a_link_that_leads_nowhere_ends_the_build(tmp_path, page, text, said):
  pytest.importorskip('mkdocs', reason="needs pip install '.[docs]'")
  with (_copy(tmp_path) / page).open('a') as file:
    file.write(f'\n{text}\n')
  done = subprocess.run(
    [sys.executable, '-m', 'mkdocs', 'build', '--strict'],
    cwd=tmp_path,
    capture_output=True,
    text=True,
    timeout=300,
  )
  assert done.returncode == 1 and said in done.stderr, done.stderr
