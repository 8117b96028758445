"""Asks a trained Ideator from outside of a run.

  python -m jaxagent.recipes.ideator request WORK_DIR [--state KEY] [--model NAME]
  python -m jaxagent.recipes.ideator template FOLDER

`request` prints the JSON of a chat completion: a state of the run's pool, with query
and trace as the policy was trained on them. `template` gives an exported tiny policy,
whose tokenizer has none, the chat template that makes its prompts of a message.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from jaxagent.config import settings
from jaxagent.config.base import base
from jaxagent.config.tasks import task_of
from jaxagent.errors import UserError
from jaxagent.files.disk import user_path
from jaxagent.recipes.ideator import pool as pools
from jaxagent.recipes.ideator import prompt as texts
from jaxagent.recipes.ideator.workflow import Prompts
from jaxagent.runtime import text_models

END_OF_PROMPT = '<sep>'  # of a run's own tokenizer
CHAT_TEMPLATE = "{{ messages[-1]['content'] }}" + END_OF_PROMPT


def request(work: pathlib.Path, key: str = '', model: str = 'policy') -> Any:
  """Returns the body of a chat completion that asks for an idea in a state.

  key: of the state; '' for the first one of validation, or else of training.

  Raises UserError where the work directory has no such state.
  """
  base('ideator')  # the recipe's options are known by it
  config, path = settings.recorded(work), work / 'collect' / 'pool.jsonl'
  try:
    pool = pools.read(path)
  except (OSError, pools.PoolError) as error:
    raise UserError(f'{path}: {error}; collect a pool first.') from error
  items = [*pool.valid, *pool.train]
  found = [item for item in items if not key or item.key == key]
  if not found:
    raise UserError(
      f'{path} has no state {key!r}; it has {", ".join(i.key for i in items[:5])}...'
    )
  context: Any = SimpleNamespace(
    config=config, spec=lambda task: task_of(config, task)
  )
  text = Prompts(context).text(found[0].state, text_models.tokens_of)
  return {
    'model': model,
    'messages': texts.messages(text),
    'max_tokens': config.rollout.max_new_tokens,
    'temperature': config.rollout.temperature,
  }


def give_template(exported: pathlib.Path) -> None:
  """Writes CHAT_TEMPLATE into the tokenizer of an exported tiny policy.

  Raises UserError where it has a template, or another end of a prompt.
  """
  path = exported / 'tokenizer_config.json'
  try:
    value = json.loads(path.read_text(encoding='utf-8'))
  except (OSError, ValueError) as error:
    raise UserError(
      f'{path}: {error}; give the folder of `python -m jaxagent.models export`.'
    ) from error
  has_template = 'chat_template' in value or any(
    exported.glob('chat_template*')
  )
  if has_template or value.get('sep_token') != END_OF_PROMPT:
    raise UserError(
      f'{exported} is no tiny policy with a tokenizer of its own, or has a chat '
      'template already; serve it as it is.'
    )
  # Split, the end of a prompt would be read as text.
  value |= {'chat_template': CHAT_TEMPLATE, 'split_special_tokens': False}
  path.write_text(json.dumps(value), encoding='utf-8')


def main(argv: Sequence[str] | None = None) -> int:
  """Returns the exit code: 2 for an error of the user."""
  parser = argparse.ArgumentParser(
    prog='python -m jaxagent.recipes.ideator',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  commands = parser.add_subparsers(dest='command', required=True)
  asks = commands.add_parser('request')
  asks.add_argument('work_dir', type=user_path)
  asks.add_argument('--state', default='', help='key of a state of the pool')
  asks.add_argument('--model', default='policy', help='name it is served by')
  gives = commands.add_parser('template')
  gives.add_argument('folder', type=user_path)
  args = parser.parse_args(argv)
  try:
    if args.command == 'request':
      print(
        json.dumps(request(args.work_dir, args.state, args.model), indent=1)
      )
    else:
      give_template(args.folder)
  except UserError as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  return 0


if __name__ == '__main__':
  sys.exit(main())
