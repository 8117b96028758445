"""The files of a model's folder: read with the reason where they are damaged.

A folder that was cloned without Git LFS, cut short or saved by an editor in
another encoding is common; each ends in one line: the file, what, the remedy.
"""

from __future__ import annotations

import json
import pathlib
import shutil
from typing import Any

# Git LFS leaves such a text where a large file should be (git-lfs/docs/spec.md).
_POINTER = b'version https://git-lfs.github.com/spec/'
_POINTER_BYTES = 1024  # more it never has

TOKENIZER_FILES = (
  'tokenizer.json',
  'tokenizer_config.json',
  'special_tokens_map.json',
  'added_tokens.json',
  'vocab.json',
  'merges.txt',
  'tokenizer.model',
  'chat_template.jinja',
)


def refuse_pointer(file: pathlib.Path) -> None:
  """Raises ValueError where a file is what Git LFS leaves in its place."""
  with open(file, 'rb') as handle:
    start = handle.read(_POINTER_BYTES)
  if start.startswith(_POINTER):
    raise ValueError(
      f'{file}: a Git LFS pointer, not the file itself; run `git lfs pull` in '
      'its folder or download the file.'
    )


def read_json(file: pathlib.Path) -> dict[str, Any]:
  """Reads a JSON object.

  Raises FileNotFoundError where there is none, and ValueError in one line for
  a Git LFS pointer, an encoding other than UTF-8, damaged JSON, or a value
  that is not an object.
  """
  file = pathlib.Path(file)
  if not file.is_file():
    raise FileNotFoundError(f'no {file}; copy it from the model.')
  refuse_pointer(file)
  return parse_json(file.read_bytes(), str(file))


def parse_json(raw: bytes, where: str) -> dict[str, Any]:
  """Reads a JSON object out of bytes; `where` begins what is raised."""
  if not raw.strip():
    raise ValueError(f'{where}: empty; copy it again.')
  try:
    value = json.loads(_decoded(raw, where))
  except (json.JSONDecodeError, RecursionError) as error:
    raise ValueError(
      f'{where}: not JSON ({" ".join(str(error).split())}); copy it again.'
    ) from error
  if not isinstance(value, dict):
    raise ValueError(
      f'{where}: holds a {type(value).__name__}, not an object; copy it again.'
    )
  return value


def copy_tokenizer(
  source: str | pathlib.Path, folder: str | pathlib.Path
) -> None:
  """Copies the tokenizer's files of one folder into another.

  They come as they are, but for what `transformers` 4 cannot read of what 5
  saved (see `_for_both`). Raises ValueError for one that is damaged.
  """
  source, folder = pathlib.Path(source), pathlib.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  for name in TOKENIZER_FILES:
    if (source / name).is_file():
      _check(source / name)
      shutil.copyfile(source / name, folder / name)
  options = folder / 'tokenizer_config.json'
  if options.is_file():
    raw = read_json(options)
    if (changed := _for_both(raw)) != raw:
      options.write_text(json.dumps(changed, indent=2), encoding='utf-8')


def _check(file: pathlib.Path) -> None:
  """Raises ValueError where a tokenizer's file is not what its name says."""
  if file.suffix == '.json':
    read_json(file)
    return
  refuse_pointer(file)
  if file.suffix in ('.txt', '.jinja'):
    _decoded(file.read_bytes(), str(file))


def _decoded(raw: bytes, where: str) -> str:
  try:
    return raw.decode('utf-8')
  except UnicodeDecodeError as error:
    raise ValueError(
      f'{where}: not UTF-8 ({error.reason} at byte {error.start}); save it as '
      'UTF-8 or copy it again.'
    ) from error


def _for_both(options: dict[str, Any]) -> dict[str, Any]:
  """Options of a tokenizer in a form that `transformers` 4.56 and 5 both read.

  4.56 knows no class TokenizersBackend and ends where extra_special_tokens is
  a list; 5 reads both older forms as its own.
  """
  out = dict(options)
  if out.get('tokenizer_class') == 'TokenizersBackend':
    out['tokenizer_class'] = 'PreTrainedTokenizerFast'
  if isinstance(extra := out.get('extra_special_tokens'), list):
    del out['extra_special_tokens']
    have = out.get('additional_special_tokens') or []
    out['additional_special_tokens'] = [
      *have, *(token for token in extra if token not in have)
    ]  # fmt: skip
  return out
