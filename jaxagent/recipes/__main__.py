"""Command line of the recipes.

  python -m jaxagent.recipes list
  python -m jaxagent.recipes new NAME --dir DIR

`new` writes a recipe that works, with its config, to be edited.
"""

from __future__ import annotations

import argparse
import keyword
import pathlib
import re
import shlex
import sys

from jaxagent import records
from jaxagent.config import recipe, sections
from jaxagent.files import disk

TEMPLATE = pathlib.Path(__file__).with_name('template')
FILES = ('recipe.py', 'config.py')


def new(name: str, folder: pathlib.Path) -> list[pathlib.Path]:
  """Writes recipe and config; returns their paths.

  Raises ValueError for a name that cannot be one, or where a file is there.
  """
  taken = {key.partition('.')[0] for key, _ in sections.all_options()}
  taken |= {*recipe.REGISTRY, *records.kinds()}
  if (
    not re.fullmatch(r'[a-z][a-z0-9_]*', name)
    or keyword.iskeyword(name)
    or hasattr(dict, name)
  ):
    raise ValueError(
      f'recipe name {name!r} must be a word of small letters, digits and _, such as '
      'ideas, and no word of Python or method of a dictionary.'
    )
  if name in taken:
    raise ValueError(
      f'recipe name {name!r} is taken by a recipe, a kind of record or an option; '
      f'choose another than: {", ".join(sorted(taken))}.'
    )
  if odd := next((mark for mark in ':\\"' if mark in str(folder)), ''):
    raise ValueError(
      f'--dir={folder} holds a {odd}, which the FILE of --config=FILE:VARIANT cannot '
      'have; choose another folder.'
    )
  paths = [folder / file for file in FILES]
  for path in paths:
    if path.exists():
      raise ValueError(f'{path} is there already; give another --dir.')
  folder.mkdir(parents=True, exist_ok=True)
  words = {
    '@NAME@': name,
    '@CLASS@': ''.join(part.capitalize() for part in name.split('_')),
    '@DIR@': shlex.quote(str(folder)),
  }
  for path in paths:
    text = (TEMPLATE / f'{path.name}.txt').read_text(encoding='utf-8')
    for word, value in words.items():
      text = text.replace(word, value)
    path.write_text(text, encoding='utf-8')
  return paths


def main(argv: list[str] | None = None) -> int:
  """Runs the command line; returns the exit status."""
  parser = argparse.ArgumentParser(
    prog='python -m jaxagent.recipes', description=__doc__.split('\n')[0]
  )
  commands = parser.add_subparsers(dest='command', required=True)
  commands.add_parser('list', help='names of the recipes, and their classes')
  add = commands.add_parser('new', help='write a recipe of your own')
  add.add_argument('name', metavar='NAME')
  add.add_argument(
    '--dir', required=True, type=disk.user_path, help='folder of its files'
  )
  arguments = parser.parse_args(argv)
  if arguments.command == 'list':
    for name, place in recipe.REGISTRY.items():
      print(f'{name:14} {place}')
    return 0
  try:
    paths = new(arguments.name, arguments.dir)
  except OSError as error:
    where = f'--dir={arguments.dir}'
    print(
      f'error: {where} cannot be written: {error.strerror}', file=sys.stderr
    )
    return 2
  except ValueError as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  for path in paths:
    print(path)
  print(
    f'run it: python -m jaxagent.main --config={shlex.quote(str(paths[1]))}'
  )
  return 0


if __name__ == '__main__':
  sys.exit(main())
