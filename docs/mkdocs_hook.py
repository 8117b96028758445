"""The docs site's pages that are made of other files, its links, and llms.txt.

README.md and CONTRIBUTING.md lie outside of docs/, where GitHub shows them: pages are made
of them and of their sections, and what a page links to outside of docs/ is copied below
`source/`. `llms.txt` lists the pages, whose Markdown lies beside them.
"""

from __future__ import annotations

import json
import pathlib
import posixpath
import re
from collections.abc import Iterator
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Page -> files with the heading of a section; '': all of a file. The first heading is
# the page's title.
MADE = {
  'index.md': [('README.md', '')],
  'contributing.md': [('CONTRIBUTING.md', '')],
  'add_a_recipe.md': [('CONTRIBUTING.md', 'Add a recipe')],
  'add_a_task.md': [('CONTRIBUTING.md', 'Add a task')],
  'bring_a_model.md': [('README.md', 'A model of your own')],
  'bring_an_endpoint.md': [
    ('README.md', 'An endpoint of your own'),
    ('docs/ml_agent.md', 'Models behind endpoints'),
  ],
  'comparison.md': [('README.md', 'When to take something else')],
}
NOTEBOOK, ITS_PAGE = 'docs/tutorial.ipynb', 'tutorial.md'
WHOLE = {
  parts[0][0]: page for page, parts in MADE.items() if not parts[0][1]
} | {NOTEBOOK: ITS_PAGE}
_LINES = re.DOTALL | re.MULTILINE
_FENCED = re.compile(r'(^```.*?^```$|`[^`\n]+`)', _LINES)
_LINK = re.compile(r'(?<=\]\()([^)\s#:]+)(#[^)\s]*)?(?=\))')
_written: dict[str, str] = {}


def on_files(files: Files, config: Any) -> Files:
  """Adds the made pages, and the files that pages link to outside of docs/."""
  _written.clear()
  linked: set[str] = set()
  for page, parts in MADE.items():
    text = ''.join(_section(*part, number) for number, part in enumerate(parts))
    text = _relinked(text, parts[0][0], page, linked)
    files.append(File.generated(config, page, content=text))
  text = _notebook(ROOT / NOTEBOOK)
  files.append(File.generated(config, ITS_PAGE, content=text))
  for file in files.documentation_pages():
    if file.src_uri not in (*MADE, ITS_PAGE):
      _relinked(file.content_string, f'docs/{file.src_uri}', '', linked)
  for name in sorted(linked):
    path = str(ROOT / name)
    files.append(File.generated(config, f'source/{name}', abs_src_path=path))
  return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
  """Points links that leave docs/ to their place in the site."""
  uri = page.file.src_uri
  if uri not in (*MADE, ITS_PAGE):
    markdown = _relinked(markdown, f'docs/{uri}', uri, set())
  _written[uri] = markdown
  return markdown


def on_nav(nav: Any, config: Any, **_: Any) -> None:
  """Keeps the navigation for llms.txt."""
  config['extra']['nav_items'] = nav.items


def on_post_build(config: Any) -> None:
  """Writes llms.txt and the Markdown of the pages."""
  site = pathlib.Path(config['site_dir'])
  for uri, text in _written.items():
    (site / uri).write_text(text, encoding='utf-8')
  lines = [f'# {config["site_name"]}', '', f'> {config["site_description"]}']
  lines += _listed(config['extra']['nav_items'])
  (site / 'llms.txt').write_text('\n'.join(lines) + '\n', encoding='utf-8')


def _listed(items: Any) -> Iterator[str]:
  """Yields the lines of llms.txt for entries of the navigation."""
  for item in items:
    if item.children is not None:
      yield from ('', f'## {item.title}', '')
      yield from _listed(item.children)
      continue
    uri = item.file.src_uri
    yield from [''] * (uri == 'index.md')
    yield f'- [{item.title}]({uri}): {_first_sentence(_written[uri])}'


def _first_sentence(markdown: str) -> str:
  """The first sentence of a page's text, without its marks."""
  for block in re.sub(r'^(```.*?^```|#.*?)$', '', markdown, flags=_LINES).split(
    '\n\n'
  ):
    if re.match(r'[\w`*\[]', block.strip()):
      text = ' '.join(block.split()).removeprefix('1. ')
      text = re.sub(r'\[([^\]]*)\]\([^)]*\)', r'\1', text)
      return re.split(r'(?<=[.:])\s', text)[0].rstrip(':.') + '.'
  return ''


def _notebook(path: pathlib.Path) -> str:
  """Returns a notebook's cells as a page, with a link to the notebook."""
  parts = []
  for cell in json.loads(path.read_text(encoding='utf-8'))['cells']:
    text = ''.join(cell['source'])
    is_code = cell['cell_type'] == 'code'
    parts.append(f'```python\n{text}\n```' if is_code else text)
  parts.insert(1, f'These are the cells of [{path.name}]({path.name}).')
  return '\n\n'.join(parts) + '\n'


def _section(name: str, heading: str, number: int) -> str:
  """Returns a file's text, or that of a section, whose heading becomes the first.

  number: of the part within its page; later ones lose their heading.
  Raises ValueError where the file has no such heading.
  """
  text = (ROOT / name).read_text(encoding='utf-8')
  if not heading:
    return text
  found = re.search(rf'^(#+) {re.escape(heading)}$', text, re.MULTILINE)
  if found is None:
    raise ValueError(
      f'{name} has no heading {heading!r}, of which a page is made.'
    )
  depth = len(found[1])
  rest = text[found.end() :]
  end = re.search(rf'^#{{1,{depth}}} ', _FENCED.sub(_blank, rest), re.MULTILINE)
  body = rest[: end.start()] if end else rest
  return f'# {heading}\n{body}' if number == 0 else body


def _blank(found: re.Match[str]) -> str:
  return ' ' * len(found[0])


def _relinked(text: str, name: str, page: str, linked: set[str]) -> str:
  """Returns a page's text with its links pointing to their places in the site.

  name: the file that it was written in, from the root of the checkout. page: the page
  that it is in. linked: takes the files outside of docs/ that it links to.
  """

  def moved(link: re.Match[str]) -> str:
    to = posixpath.normpath(posixpath.join(posixpath.dirname(name), link[1]))
    if to in WHOLE:
      to = WHOLE[to]
    elif to.startswith('docs/'):
      to = to.removeprefix('docs/')
    elif (ROOT / to).is_file():
      linked.add(to)
      to = f'source/{to}'
    else:
      return link[0]  # mkdocs says that it leads nowhere
    return posixpath.relpath(to, posixpath.dirname(page) or '.') + (
      link[2] or ''
    )

  parts = _FENCED.split(text)
  return ''.join(
    part if number % 2 else _LINK.sub(moved, part)
    for number, part in enumerate(parts)
  )
