"""The table of all options: `--config_help`, and docs/config.md.

python -m jaxagent.config.table > docs/config.md
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from jaxagent.config import checks, sections
from jaxagent.options import Row, shown

_PARTS = (
  (False, 'Options'),
  (True, 'Advanced options'),
)
_WIDEST = 35  # characters of a column; a longer cell moves those after it
_INTRO = """\
# Options

Made by `python -m jaxagent.config.table > docs/config.md`; a test fails when it
is stale. Each option belongs to the package that reads it: its default, choices,
bounds and help stand there alone (`sandbox/config.py`, `envs/config.py`,
`rewards/config.py`, `llm/config.py`, `rollout/config.py`, `learner/config.py`,
`models/options.py`, `config/stages.py`). `--config.KEY=VALUE` sets one on the
command line, and `--config_help` prints this table with the values of an
experiment. `jaxagent.options` says how a section of options is written."""


def text(config: Any) -> str:
  """Returns the table for a terminal; config None: the defaults alone.

  The column `value` is empty where a config has the default.
  """
  blocks = []
  for is_advanced, title in _PARTS:
    lines = [('key', 'default', 'value', 'accepts', 'help')]
    for row in _rows(is_advanced, config):
      lines.append(
        (row.key, row.default, _value(config, row), row.accepts, row.help)
      )
    blocks.append(f'{title}\n\n' + '\n'.join(_aligned(lines)))
  return '\n\n'.join(blocks)


def page() -> str:
  """Returns docs/config.md."""
  blocks = [_INTRO]
  for is_advanced, title in _PARTS:
    lines = ['| key | default | accepts | help |', '|---|---|---|---|']
    for row in _rows(is_advanced):
      cells = (f'`{row.key}`', _code(row.default), row.accepts, row.help)
      lines.append(f'| {" | ".join(map(_escaped, cells))} |')
    blocks.append(f'## {title}\n\n' + '\n'.join(lines))
  return '\n\n'.join(blocks)


def _rows(is_advanced: bool, config: Any = None) -> list[Row]:
  return [row for row in sections.rows(config) if row.advanced == is_advanced]


def _value(config: Any, row: Row) -> str:
  """Returns the config's value where it is not the default, else ''."""
  if config is None or not checks.has(config, row.key):
    return ''
  value = shown(checks.get(config, row.key))
  return '' if value == row.default else _cut(value)


def _aligned(lines: Iterable[Sequence[str]]) -> list[str]:
  """Returns lines whose cells stand in columns; the last is not padded."""
  rows = list(lines)
  widths = [
    min(max(len(row[i]) for row in rows), _WIDEST)
    for i in range(len(rows[0]) - 1)
  ]
  return [
    '  '.join([*(c.ljust(w) for c, w in zip(row, widths)), row[-1]])
    for row in rows
  ]


def _cut(cell: str) -> str:
  return cell if len(cell) <= _WIDEST else cell[: _WIDEST - 3] + '...'


def _code(value: str) -> str:
  return value and f'`{value}`'


def _escaped(cell: str) -> str:
  return cell.replace('|', r'\|')


if __name__ == '__main__':
  print(page())
