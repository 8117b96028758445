"""Ids of a text: tokenizer.json decides, and other readers must agree with it.

`transformers` 5 gives every folder of model_type qwen2 the class Qwen2Tokenizer,
which takes vocabulary and merges of tokenizer.json and replaces its normalizer,
its cuts and its decoder; 4.x keeps the file. A policy that is trained on one
reading and served under another is another policy.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import itertools
import json
import logging
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers

from jaxagent.files import model_files

_log = logging.getLogger(__name__)

# One of them says that a folder holds a tokenizer.
ENTRY_FILES = ('tokenizer.json', 'vocab.json', 'tokenizer.model')
# Texts that tokenizers cut in different ways: numbers, indents, line ends,
# apostrophes, signs, composed and decomposed letters, blanks at both ends.
PROBES = (
  'score 0.8415, 1234567890 rows',
  'def f(x):\n    return x  # 2 * x\n\n\nclass A:\n\tpass\n',
  '    indented by four\r\n  and by two',
  ' a blank before and after ',
  '\n\nlines before',
  'Action Input: {"script_name": "train.py", "n": [1, -2.5e-3]}',
  "I'M sure we'll see what it's like, don't you?",
  'a != b; c <= d -> e => f ... (g) [h] {i} `j` "k" \'l\'',
  'caf\u00e9 cafe\u0301 \u6f22\u5b57 \U0001f600 \u00a0 \u2028 \u0644\u0627',
  '```python\nimport numpy as np\n```',
  'CamelCase snake_case UPPER x1y2z3 --flag=3',
)
PROBE_FILE = 'probes.json'  # beside a run's tokenizer
_READ_CHARACTERS = 4_000_000  # of a run's texts that are compared
# A word, as transformers/models/qwen2/tokenization_qwen2.py cuts them.
_WORD = (
  r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
  r'| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+'
)
_RUN_FOLDERS = ('collect', 'rl/traces', 'eval', 'tasks')
_PACKAGES = ('transformers', 'tokenizers')


def holds_tokenizer(folder: pathlib.Path) -> bool:
  """Says whether a folder has one of the files that a tokenizer begins with."""
  return any((pathlib.Path(folder) / name).is_file() for name in ENTRY_FILES)


def from_file(file: str | pathlib.Path) -> Tokenizer:
  """Reads a tokenizer.json; texts are neither cut nor filled, whatever it says.

  Raises ValueError in one line where it is damaged or missing.
  """
  file = pathlib.Path(file)
  if not file.is_file():
    raise ValueError(f'{file} is missing; give a tokenizer folder.')
  model_files.read_json(file)
  try:
    tokenizer = Tokenizer.from_file(str(file))
  except Exception as error:  # noqa: BLE001 - the library raises bare ones
    raise ValueError(
      f'{file}: not a tokenizer ({" ".join(str(error).split())}); copy it again.'
    ) from error
  tokenizer.no_truncation()
  tokenizer.no_padding()
  return tokenizer


def like_qwen2(tokenizer: Tokenizer) -> Tokenizer:
  """Gives a tokenizer the parts that `transformers` 5 puts in for qwen2."""
  tokenizer.normalizer = normalizers.NFC()
  tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
    [
      pre_tokenizers.Split(Regex(_WORD), behavior='isolated'),
      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
  )
  tokenizer.decoder = decoders.ByteLevel()
  return tokenizer


def copy(source: str | pathlib.Path, folder: str | pathlib.Path) -> None:
  """Copies a tokenizer's files; a tokenizer.json is made where there is none.

  Raises ValueError where the installed `transformers` cannot make it.
  """
  source, folder = pathlib.Path(source), pathlib.Path(folder)
  model_files.copy_tokenizer(source, folder)
  file = folder / 'tokenizer.json'
  if file.is_file() or not holds_tokenizer(source):
    return
  made = getattr(_auto(source), 'backend_tokenizer', None)
  if made is None:
    raise ValueError(
      f'{source}: has no tokenizer.json and transformers '
      f'{_version("transformers")} makes none of it; save it with one.'
    )
  made.save(str(file))


def check_readers(
  folder: str | pathlib.Path,
  model: Mapping[str, Any],
  texts: Iterable[str] = (),
) -> None:
  """Compares the installed AutoTokenizer with tokenizer.json, text by text.

  folder: of the tokenizer; one without a tokenizer.json is not compared.
  model: config.json of the model that is served with it.
  texts: compared after PROBES, up to some million characters.

  Raises ValueError by example where ids or the way back differ. Where the
  installed version is 4 and 5 would give other ids, the log says so.
  """
  folder = pathlib.Path(folder)
  if not (folder / 'tokenizer.json').is_file():
    return
  texts = list(_some(itertools.chain(PROBES, texts)))
  named = from_file(folder / 'tokenizer.json')
  plain = from_file(folder / 'tokenizer.json')
  plain.encode_special_tokens = True
  with tempfile.TemporaryDirectory() as place:
    copy(folder, place)
    config = json.dumps(dict(model))
    (pathlib.Path(place) / 'config.json').write_text(config, encoding='utf-8')
    theirs = _auto(pathlib.Path(place), called=folder)
  reader = f'transformers {_version("transformers")} ({type(theirs).__name__})'

  def compare(text: str, own: Tokenizer, **options: Any) -> None:
    ids = own.encode(text, add_special_tokens=False).ids
    read = theirs(text, add_special_tokens=False, verbose=False, **options)
    if (found := list(read['input_ids'])) != ids:
      raise _Differs(_example(text, found, ids))
    back = own.decode(ids, skip_special_tokens=False)
    found = theirs.decode(
      ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    if found != back:
      raise _Differs(f'turns {_short(ids)} back into {_cut(found, back)}')

  try:
    for text in texts:
      _smallest(text, lambda t: compare(t, plain, split_special_tokens=True))
    for text in _rendered(theirs):
      compare(text, named)
  except _Differs as error:
    raise ValueError(
      f'{folder}: {reader} {error}. tokenizer.json decides here, so this '
      'model would be served on other ids than it is trained on; install a '
      'transformers that keeps the file (4.57 does), or give a tokenizer whose '
      f'files it keeps with model_type {model.get("model_type")!r}.'
    ) from error
  if (
    model.get('model_type') == 'qwen2' and _version('transformers')[:2] == '4.'
  ):
    _tell_of_5(folder, plain, texts)


def _tell_of_5(
  folder: pathlib.Path, plain: Tokenizer, texts: Iterable[str]
) -> None:
  """Logs the first text that Qwen2Tokenizer of `transformers` 5 reads otherwise."""
  later = like_qwen2(from_file(folder / 'tokenizer.json'))
  later.encode_special_tokens = True
  for text in texts:
    ids = plain.encode(text, add_special_tokens=False).ids
    if (found := later.encode(text, add_special_tokens=False).ids) != ids:
      _log.warning(
        '%s: transformers 5 (Qwen2Tokenizer), and servers that use it, %s.',
        folder, _example(text, found, ids),
      )  # fmt: skip
      return


class _Differs(Exception):
  """Two readers differ; the message continues a reader's name."""


def _smallest(text: str, compare: Callable[[str], None]) -> None:
  """Compares a text; a line of it serves as the example where one differs."""
  try:
    compare(text)
  except _Differs:
    for line in text.splitlines(keepends=True):
      compare(line)
    raise


def _example(text: str, found: list[int], ids: list[int]) -> str:
  same = (i for i, (a, b) in enumerate(zip(found, ids)) if a != b)
  at = next(same, min(len(found), len(ids)))
  return (
    f'gives {_quoted(text)} the ids {_short(found, at)}, tokenizer.json '
    f'{_short(ids, at)}'
  )


def _short(ids: list[int], at: int = 0, room: int = 8) -> str:
  """Some ids from just before a place on, for a message."""
  start = max(0, min(at - 2, len(ids) - room))
  shown = ', '.join(map(str, ids[start : start + room]))
  before = '... ' if start else ''
  return f'[{before}{shown}{" ..." if start + room < len(ids) else ""}]'


def _cut(found: str, back: str) -> str:
  at = next(
    (i for i, (a, b) in enumerate(zip(found, back)) if a != b),
    min(len(found), len(back)),
  )
  start = max(0, at - 8)
  return (
    f'{_quoted(found[start:])}, tokenizer.json into {_quoted(back[start:])}'
  )


def _quoted(text: str, room: int = 48) -> str:
  return ascii(text if len(text) <= room else text[:room] + '...')


def _some(texts: Iterable[str], room: int = _READ_CHARACTERS) -> Iterator[str]:
  """Distinct texts, until they have `room` characters."""
  seen = set()
  for text in texts:
    if text in seen:
      continue
    seen.add(text)
    yield text
    room -= len(text)
    if room < 0:
      return


def _rendered(tokenizer: Any) -> Iterator[str]:
  """A user's message in the chat template, where there is one that renders."""
  if not tokenizer.chat_template:
    return
  turns = [{'role': 'user', 'content': PROBES[0]}]
  try:
    text = tokenizer.apply_chat_template(
      turns, tokenize=False, add_generation_prompt=True
    )
  except Exception:  # noqa: BLE001 - data/chat.py names a template that fails
    return
  yield text


def texts_of_run(work: str | pathlib.Path) -> Iterator[str]:
  """Yields what a work directory holds of texts, some of each kind.

  They are the strings of its trajectories, traces and evaluations, and the
  task's own text files; a file that cannot be read is left out.
  """
  for name in _RUN_FOLDERS:
    files = sorted((pathlib.Path(work) / name).rglob('*'))
    found = (text for file in files for text in _texts_in(file))
    yield from _some(found, _READ_CHARACTERS // len(_RUN_FOLDERS))


def _texts_in(file: pathlib.Path) -> Iterator[str]:
  """The texts of one file, by its suffix."""
  if (
    file.suffix not in ('.json', '.jsonl', '.txt', '.py') or not file.is_file()
  ):
    return
  try:
    whole = file.read_text(encoding='utf-8')
  except (OSError, UnicodeDecodeError):
    return
  if file.suffix in ('.txt', '.py'):
    yield whole
    return
  for text in [whole] if file.suffix == '.json' else whole.splitlines():
    with contextlib.suppress(ValueError, RecursionError):
      yield from _strings(json.loads(text))


def _strings(value: Any) -> Iterator[str]:
  """Strings within JSON values, but for arrays that were packed into one."""
  if isinstance(value, str):
    yield value
  elif isinstance(value, list):
    for part in value:
      yield from _strings(part)
  elif isinstance(value, dict) and value.get('__kind__') != 'array':
    for part in value.values():
      yield from _strings(part)


def check_same(file: pathlib.Path, tokenizer: Any) -> None:
  """Compares a tokenizer with what it gave when a run began, by PROBES.

  file: written where there is none, with the versions of the libraries.
  tokenizer: encodes prompts and responses and decodes, as the stages use one.

  Raises ValueError by example where ids or texts are others.
  """
  found = {text: _probe(tokenizer, text) for text in PROBES}
  if not file.is_file():
    record = {'versions': _versions(), 'probes': found}
    part = file.with_name(file.name + '.part')
    part.write_text(json.dumps(record), encoding='utf-8')
    part.replace(file)
    return
  held = model_files.read_json(file)
  for text, was in (held.get('probes') or {}).items():
    now = found.get(text) or _probe(tokenizer, text)
    for name, value in was.items():
      if now.get(name, value) != value:
        raise ValueError(
          f'{file}: {_quoted(text)} gave {name} {_shown(value)} under '
          f'{_spoken(held.get("versions"))} and gives {_shown(now[name])} under '
          f'{_spoken(_versions())}; install those versions again, give back the '
          'tokenizer that the run began with, or use another --work_dir.'
        )


def _probe(tokenizer: Any, text: str) -> dict[str, Any]:
  ids = tokenizer.encode(text)
  found = {
    'ids': ids,
    'response': tokenizer.encode_response(text),
    'text': tokenizer.decode_response(ids),
  }
  if not getattr(tokenizer, 'dated', False):
    found['prompt'] = tokenizer.encode_prompt(text)
  return found


def _shown(value: Any) -> str:
  return _quoted(value) if isinstance(value, str) else _short(value)


def _spoken(versions: Any) -> str:
  pairs = versions.items() if isinstance(versions, dict) else ()
  return ', '.join(f'{name} {version}' for name, version in pairs) or 'others'


def _versions() -> dict[str, str]:
  return {name: _version(name) for name in _PACKAGES}


def _version(name: str) -> str:
  try:
    return importlib.metadata.version(name)
  except importlib.metadata.PackageNotFoundError:
    return 'not installed'


def _auto(folder: pathlib.Path, called: pathlib.Path | None = None):
  from transformers import AutoTokenizer

  try:
    return AutoTokenizer.from_pretrained(
      str(folder), local_files_only=True, trust_remote_code=False
    )
  except Exception as error:  # noqa: BLE001 - the library raises many
    raise ValueError(
      f'{called or folder}: transformers {_version("transformers")} cannot read '
      f'the tokenizer: {" ".join(str(error).split())[:400]}'
    ) from error
