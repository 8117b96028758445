"""Draws the picture of README.md, `docs/img/flow.svg`, from `docs/flow.txt`.

python docs/flow.py
"""

from __future__ import annotations

import html
import pathlib

HERE = pathlib.Path(__file__).parent
SOURCE, PICTURE = HERE / 'flow.txt', HERE / 'img' / 'flow.svg'
WIDTH, HEIGHT = 168, 82  # of a box, in pixels
STEP_X, STEP_Y, MARGIN = 226, 150, 14
HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" \
width="{width}" height="{height}" role="img" aria-label="{label}">
<style>
text {{ font: 12.5px system-ui, "DejaVu Sans", sans-serif; fill: #333; }}
.title {{ font-weight: bold; font-size: 14px; fill: #111; }}
.host {{ fill: #eef3fb; stroke: #5b7fb5; }}
.device {{ fill: #fdf0e3; stroke: #c9803a; }}
.arrow {{ stroke: #666; stroke-width: 1.5; marker-end: url(#head); }}
</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" \
markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z" fill="#666"/></marker></defs>
<rect width="100%" height="100%" rx="8" fill="#fff"/>
"""


def picture(source: str) -> str:
  """Returns the SVG of a text of boxes and arrows.

  Raises ValueError, with the line, for what is neither.
  """
  boxes: dict[str, tuple[int, int]] = {}
  shapes, labels = [], []
  rows = columns = 0
  for line in source.splitlines():
    kind, _, rest = line.partition(' ')
    if not line or kind == '#':
      continue
    try:
      if kind == 'box':
        name, column, row, side, text = rest.split(' ', 4)
        boxes[name] = int(column), int(row)
        columns, rows = max(columns, int(column)), max(rows, int(row))
        shapes.append(_box(*boxes[name], side, text))
        labels.append(text.split(' | ')[0])
      elif kind == 'arrow':
        start, end, *text = rest.split(' ', 2)
        shapes.append(_arrow(boxes[start], boxes[end], ' '.join(text)))
      else:
        raise ValueError('neither box nor arrow')
    except (ValueError, KeyError) as error:
      raise ValueError(f'{line!r}: {error}') from error
  bottom = 2 * MARGIN + rows * STEP_Y + HEIGHT
  head = HEAD.format(
    width=2 * MARGIN + columns * STEP_X + WIDTH,
    height=bottom + 22,
    label=html.escape(', '.join(labels)),
  )
  return head + ''.join(shapes) + _legend(bottom) + '</svg>\n'


def _corner(column: int, row: int) -> tuple[int, int]:
  return MARGIN + column * STEP_X, MARGIN + row * STEP_Y


def _box(column: int, row: int, side: str, text: str) -> str:
  x, y = _corner(column, row)
  title, *lines = text.split(' | ')
  middle = x + WIDTH // 2
  made = (
    f'<rect class="{side}" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" '
    f'rx="6"/>\n{_text(middle, y + 25, title, "title")}'
  )
  for number, line in enumerate(lines):
    made += _text(middle, y + 47 + 18 * number, line)
  return made


def _arrow(start: tuple[int, int], end: tuple[int, int], text: str) -> str:
  """Draws from edge to edge of two boxes in a row or in a column."""
  (x0, y0), (x1, y1) = _corner(*start), _corner(*end)
  if y0 == y1:
    x0, x1 = (x0 + WIDTH, x1) if x1 > x0 else (x0, x1 + WIDTH)
    y0 = y1 = y0 + HEIGHT // 2
    label = _text((x0 + x1) // 2, y0 - 8, text)
  elif x0 == x1:
    y0, y1 = (y0 + HEIGHT, y1) if y1 > y0 else (y0, y1 + HEIGHT)
    x0 = x1 = x0 + WIDTH // 2
    label = _text(x0 + 8, (y0 + y1) // 2 + 4, text, anchor='start')
  else:
    raise ValueError('its boxes are neither in a row nor in a column')
  line = f'<line class="arrow" x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}"/>\n'
  return line + (label if text else '')


def _text(
  x: int, y: int, text: str, kind: str = '', anchor: str = 'middle'
) -> str:
  mark = f' class="{kind}"' if kind else ''
  return (
    f'<text{mark} x="{x}" y="{y}" text-anchor="{anchor}">'
    f'{html.escape(text)}</text>\n'
  )


def _legend(y: int) -> str:
  made = ''
  for x, side, text in (
    (MARGIN, 'device', 'on the devices, with JAX'),
    (
      MARGIN + STEP_X,
      'host',
      'on the host, without JAX; all of it goes on at once',
    ),
  ):
    made += (
      f'<rect class="{side}" x="{x}" y="{y - 2}" width="12" height="12"/>\n'
      + _text(x + 18, y + 9, text, anchor='start')
    )
  return made


if __name__ == '__main__':
  PICTURE.write_text(picture(SOURCE.read_text()))
