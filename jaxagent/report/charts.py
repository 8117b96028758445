"""Small SVG charts as text. Colours are CSS classes, so themes apply.

Every label goes through `escape`; coordinates are numbers made here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from markupsafe import Markup, escape

WIDTH, HEIGHT = 360, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 10, 26
_HUGE = 1e300
Series = tuple[str, str, Sequence[tuple[float, float]]]  # label, class, points


def _bounded(value: float) -> float:
  """Differences of such values are finite."""
  return min(max(value, -_HUGE), _HUGE)


def nice_ticks(low: float, high: float, count: int = 4) -> list[float]:
  """About `count` round numbers that span [low, high]; at least two."""
  low, high = _bounded(low), _bounded(high)
  largest = max(abs(low), abs(high))
  # Ticks closer than a float tells apart would be one and the same.
  if not high - low > max(1e-9 * largest, 1 / _HUGE):
    pad = 0.1 * largest if largest > 10 / _HUGE else 1.0
    low, high = low - pad, high + pad
  raw = (high - low) / count
  size = 10.0 ** math.floor(math.log10(raw))
  step = next(m * size for m in (1, 2, 2.5, 5, 10) if m * size >= raw * 0.999)
  first = math.floor(low / step + 1e-9)
  last = math.ceil(high / step - 1e-9)
  return [i * step for i in range(first, last + 1)]


def number(value: float | None, digits: int = 3) -> str:
  """A short figure for people: 3 significant digits, a dash for none."""
  if value is None or not math.isfinite(value):
    return '–'
  if value == 0:
    return '0'
  size = abs(value)
  if size >= 10**6 or size < 10**-4:
    return f'{value:.{digits - 1}e}'
  if size >= 10 ** (digits - 1):
    return f'{value:,.0f}'
  places = digits - 1 - math.floor(math.log10(size))
  return f'{value:.{places}f}'


def _tick(value: float, step: float) -> str:
  """Axis label with no more decimals than the step between ticks needs."""
  if abs(value) >= 10**5:
    return f'{value:.0e}'
  places = max(0, -math.floor(math.log10(step) + 1e-9))
  if places and round(step, places) != round(step, 12):
    places += 1  # steps of 0.25
  return f'{value:.{min(places, 6)}f}'


def smooth(points: Sequence[tuple[float, float]], width: int) -> list:
  """Centred running mean of y over `width` points, narrower at the ends."""
  half = width // 2
  out = []
  for i, (x, _) in enumerate(points):
    reach = min(half, i, len(points) - 1 - i)
    window = [y for _, y in points[i - reach : i + reach + 1]]
    out.append((x, sum(window) / len(window)))
  return out


def line_chart(title: str, series: Sequence[Series], x_label: str) -> Markup:
  """Lines over a shared axis, with a cross-hair's data for the script."""
  series = [(n, c, [(x, _bounded(y)) for x, y in p]) for n, c, p in series if p]
  xs = [x for _, _, points in series for x, _ in points]
  ys = [y for _, _, points in series for _, y in points]
  ticks = nice_ticks(min(ys), max(ys))
  x_low, x_high = min(xs), max(max(xs), min(xs) + 1)

  def px(x: float) -> float:
    share = (x - x_low) / (x_high - x_low)
    return _LEFT + share * (WIDTH - _LEFT - _RIGHT)

  def py(y: float) -> float:
    share = (y - ticks[0]) / (ticks[-1] - ticks[0])
    return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)

  body = [_y_axis(ticks, py)]
  for x in _x_ticks(x_low, x_high):
    body.append(
      f'<text class="tick" x="{px(x):.1f}" y="{HEIGHT - 9}" '
      f'text-anchor="middle">{x:g}</text>'
    )
  body += [_polyline(css, points, px, py) for _, css, points in series]
  hover = _hover(series, px, py, x_label)
  return Markup(
    f'<svg class="chart line" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
    f'aria-label="{escape(title)}" data-hover="{escape(hover)}">'
    + ''.join(body)
    + f'<line class="cross" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}" hidden=""/>'
    + '</svg>'
  )


def _y_axis(ticks: Any, py: Callable[[float], float]) -> str:
  step = ticks[1] - ticks[0]
  return ''.join(
    f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" '
    f'y1="{py(t):.1f}" y2="{py(t):.1f}"/>'
    f'<text class="tick" x="{_LEFT - 6}" y="{py(t) + 3.5:.1f}" '
    f'text-anchor="end">{_tick(t, step)}</text>'
    for t in ticks
  )


def _x_ticks(low: float, high: float) -> list[float]:
  inside = [t for t in nice_ticks(low, high, 5) if low <= t <= high]
  return [t for t in inside if t == int(t)] or [low, high]


def _polyline(
  css: str,
  points: Any,
  px: Callable[[float], float],
  py: Callable[[float], float],
) -> str:
  if len(points) == 1:
    (x, y) = points[0]
    return (
      f'<circle class="dot {css}" cx="{px(x):.1f}" cy="{py(y):.1f}" r="3"/>'
    )
  path = ' '.join(f'{px(x):.1f},{py(y):.1f}' for x, y in points)
  return f'<polyline class="series {css}" points="{path}"/>'


def _hover(
  series: Any,
  px: Callable[[float], float],
  py: Callable[[float], float],
  x_label: str,
) -> str:
  """JSON [[pixel x, heading, [[label, class, value], ...]], ...]."""
  rows: dict[float, list] = {}
  for name, css, points in series:
    for x, y in points:
      rows.setdefault(x, []).append([name, css, number(y, 4)])
  return json.dumps(
    [[round(px(x), 1), f'{x_label} {x:g}', rows[x]] for x in sorted(rows)]
  )


def forest(
  rows: Sequence[tuple[str, str, dict | None]], low: float, high: float
) -> Markup:
  """One line for each policy: its mean as a dot, its interval as a bar.

  rows: (label, class, {mean, low, high, n} or None); low, high: the axis.
  """
  width, step, left, right = 360, 26, 62, 64
  ticks = nice_ticks(low, high, 3)
  height = step * len(rows) + 24

  def px(x: float) -> float:
    share = (x - ticks[0]) / (ticks[-1] - ticks[0])
    return left + share * (width - left - right)

  body = []
  for t in ticks:
    body.append(
      f'<line class="{"zero" if t == 0 else "grid"}" x1="{px(t):.1f}" '
      f'x2="{px(t):.1f}" y1="4" y2="{height - 20}"/>'
      f'<text class="tick" x="{px(t):.1f}" y="{height - 6}" '
      f'text-anchor="middle">{_tick(t, ticks[1] - ticks[0])}</text>'
    )
  for i, (label, css, value) in enumerate(rows):
    y = 4 + step * (i + 0.5)
    body.append(f'<text class="name" x="0" y="{y + 4}">{escape(label)}</text>')
    if not value or value.get('mean') is None:
      body.append(f'<text class="tick" x="{left}" y="{y + 4}">no runs</text>')
      continue
    a, m, b = px(value['low']), px(value['mean']), px(value['high'])
    tip = (
      f'{label}: {number(value["mean"])} '
      f'[{number(value["low"])}, {number(value["high"])}], n={value["n"]}'
    )
    body.append(
      f'<g><title>{escape(tip)}</title>'
      f'<line class="bar {css}" x1="{a:.1f}" x2="{b:.1f}" y1="{y}" y2="{y}"/>'
      f'<circle class="dot {css}" cx="{m:.1f}" cy="{y}" r="5"/></g>'
      f'<text class="value" x="{width}" y="{y + 4}" text-anchor="end">'
      f'{number(value["mean"])}</text>'
    )
  return Markup(
    f'<svg class="chart" viewBox="0 0 {width} {height}" role="img">'
    + ''.join(body)
    + '</svg>'
  )


def log_histogram(values: Sequence[float], unit: str) -> Markup:
  """Counts in logarithmic bins (five a decade); values must be > 0."""
  values = [v for v in values if v > 0 and math.isfinite(v)]
  if not values:
    return Markup('')
  width, height = 560, 210
  first = math.floor(math.log10(min(values)) * 5)
  last = max(math.floor(math.log10(max(values)) * 5), first + 4)
  counts = [0] * (last - first + 1)
  for value in values:
    counts[math.floor(math.log10(value) * 5) - first] += 1
  ticks = nice_ticks(0, max(counts))
  slot = (width - _LEFT - _RIGHT) / len(counts)
  plot = height - _TOP - _BOTTOM - 12

  def py(y: float) -> float:
    return _TOP + plot * (1 - y / ticks[-1])

  body = [
    f'<line class="grid" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{py(t):.1f}" '
    f'y2="{py(t):.1f}"/><text class="tick" x="{_LEFT - 6}" '
    f'y="{py(t) + 3.5:.1f}" text-anchor="end">{t:g}</text>'
    for t in ticks
    if t == int(t)
  ]
  for i, count in enumerate(counts):
    x = _LEFT + i * slot
    lo, hi = 10 ** ((first + i) / 5), 10 ** ((first + i + 1) / 5)
    tip = f'{number(lo)} to {number(hi)} {unit}: {count}'
    if count:
      body.append(
        f'<rect class="column" x="{x + 1:.1f}" y="{py(count):.1f}" '
        f'width="{slot - 2:.1f}" height="{plot + _TOP - py(count):.1f}" '
        f'rx="2"><title>{escape(tip)}</title></rect>'
      )
    if (first + i) % 5 == 0 or len(counts) < 8:  # whole decades
      lo_text = f'{float(number(lo, 2)):g}' if lo < 100 else f'{lo:.0f}'
      body.append(
        f'<text class="tick" x="{x:.1f}" y="{height - 22}" '
        f'text-anchor="middle">{lo_text}</text>'
      )
  body.append(
    f'<text class="tick" x="{width / 2}" y="{height - 5}" '
    f'text-anchor="middle">{escape(unit)}, logarithmic</text>'
  )
  return Markup(
    f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" '
    f'aria-label="histogram">' + ''.join(body) + '</svg>'
  )
