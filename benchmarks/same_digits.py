"""Do two checkouts compute the same? Rewards, traces and evaluation, exactly.

  python -m benchmarks.same_digits --before DIR --after DIR
      [--recipe stepwise|rl_for_mle|both] [--renamed old=new ...]

Each checkout runs its own `jaxagent.main` with one small config and one seed, in
which no digit depends on a clock: collecting, SFT, 6 updates and evaluation.
Whatever the first one wrote must be in the second one with the same value; what
was added is counted only. Both run the older arithmetic where a faster one was added
by option (OLDER). Seconds, dates, versions, places of the checkouts'
files, the hashes of the chain of traces and the ends of intervals, which are computed
in another way since `analysis/intervals.py`, are left out. Exits 0 if there is no
difference and not every reward is 0. A finished run of a clean commit is reused.
Both recipes of two checkouts take some six minutes on two idle cores.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.kill_resume import OF_THE_PROCESS, SYNC

# Config keys that one of the checkouts knows by another name: old -> new.
RENAMED: dict[str, str] = {}

# Options that keep an older arithmetic, given to the checkouts that have them: sums in
# another order are other digits. Faster paths are held to these by tests of their own
# (tests/models/test_attention.py, tests/learner/test_flat_rows.py), to 1e-5.
OLDER = {'model.attention': 'mapped', 'rl.row_layout': 'packed'}

RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
  'stepwise': (
    'configs/stepwise_ppo.py',
    {
      'tasks.heldin': "('wine','diabetes')",
      'tasks.heldout': "('breast-cancer',)",
      'collect.trajectories_per_task': 12,
      'collect.max_steps': 4,
      'sft.epochs': 30,
      'rollout.temperature': 0.5,
      'rollout.max_new_tokens': 128,
      'model.hf.num_hidden_layers': 2,
      'rl.value_warmup_epochs': 1,
      'eval.trajectories_per_task': 4,
      'eval.k': 2,
    },
  ),
  'rl_for_mle': (
    'configs/rl_for_mle.py',
    {
      'model.hf.hidden_size': 64,
      'model.hf.num_hidden_layers': 2,
      'solution.programs': 4,
      'solution.samples': 4,
      'sft.batch_size': 4,
      'sft.epochs': 60,
      'rollout.temperature': 0.3,
      'rl.policy_lr': 1e-5,
      'eval.k': 2,
    },
  ),
}
_SYNC = dict(o.removeprefix('--config.').split('=', 1) for o in SYNC)
SHARED = {**_SYNC, 'rl.updates': 6, 'rl.batch_size': 8}

# In the order in which a run writes them: the first difference comes first.
FILES = (
  'collect/*.jsonl',
  'logs/sft/metrics.jsonl',
  'eval/starts.json',
  'eval/sft.json',
  'logs/value_warmup/metrics.jsonl',
  'rl/traces/*.jsonl',
  'logs/metrics.jsonl',
  'eval/*.json',
  'summary.json',
)
# Metrics by prefix; `time` is a whole name, `timeout_rate` is compared.
_OF_THE_PROCESS = tuple(name for name in OF_THE_PROCESS if name != 'time')
# Seconds, dates, versions, hashes that are over these as well, and ends of intervals.
_LEFT_OUT = re.compile(
  r'.*_s$|time|timestamp|hash|prev_hash|config_sha|versions|wall_s|low|high'
)
# Tracebacks name files where each checkout has them; lines of its own move.
_PLACE = re.compile(r'[^\s"]*/(site-packages|jaxagent)/')
_OWN_LINE = re.compile(r'("jaxagent/[^"\n]+", line )\d+')
_NUMBER = re.compile(r'(\d+)')
MOST_SHOWN = 50


@dataclasses.dataclass
class Comparison:
  """What comparing two work directories found.

  differences: a line for each path, in the order of FILES.
  values: how many leaves were compared; added: those of the second one alone.
  rewards: how many of the first one's traced rewards are not 0.
  """

  differences: list[str] = dataclasses.field(default_factory=list)
  values: int = 0
  added: int = 0
  rewards: int = 0

  def compare(self, path: str, before: Any, after: Any) -> None:
    """Compares two JSON values; those below a left out key are passed over."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
      for key in before:
        if _is_left_out(key):
          continue
        if key in after:
          self.compare(f'{path}.{key}', before[key], after[key])
        else:
          self.differences.append(f'{path}.{key}: missing')
      self.added += sum(k not in before and not _is_left_out(k) for k in after)
    elif isinstance(before, list) and isinstance(after, list):
      if len(before) != len(after):
        self.differences.append(f'{path}: {len(before)} and {len(after)} items')
      for number, (old, new) in enumerate(zip(before, after)):
        self.compare(f'{path}[{number}]', old, new)
    else:
      self.values += 1
      if type(before) is not type(after) or _placed(before) != _placed(after):
        self.differences.append(f'{path}: {_short(before)} and {_short(after)}')


def _placed(value: Any) -> Any:
  """Returns a text without the places of a checkout's files."""
  if not isinstance(value, str):
    return value
  return _OWN_LINE.sub(r'\g<1>N', _PLACE.sub(r'\1/', value))


def _is_left_out(key: str) -> bool:
  return key.startswith(_OF_THE_PROCESS) or bool(_LEFT_OUT.fullmatch(key))


def _short(value: Any) -> str:
  text = json.dumps(value)
  return text if len(text) <= 60 else f'{text[:57]}...'


def compare(before: pathlib.Path, after: pathlib.Path) -> Comparison:
  """Compares two work directories; raises FileNotFoundError without traces."""
  found = Comparison()
  paths = list(dict.fromkeys(_written(before)))
  if not any(path.startswith('rl/traces/') for path in paths):
    raise FileNotFoundError(f'{before} holds no rl/traces: the run has no RL.')
  for path in paths:
    old = read(before / path)
    if path.startswith('rl/traces/'):
      found.rewards += sum(bool(record.get('reward')) for record in old)
    if (after / path).is_file():
      found.compare(path, old, read(after / path))
    else:
      found.differences.append(f'{path}: missing')
  return found


def _written(work: pathlib.Path) -> Iterator[str]:
  for pattern in FILES:
    for path in sorted(work.glob(pattern), key=_natural):
      yield path.relative_to(work).as_posix()


def _natural(path: pathlib.Path) -> list[str | int]:
  parts = _NUMBER.split(path.as_posix())
  return [int(p) if p.isdigit() else p for p in parts]


def read(path: pathlib.Path) -> Any:
  """Reads JSON, or JSON lines as a list; expert steps by task and number.

  Trajectories are appended as they end, in an order of no meaning.
  """
  text = path.read_text(encoding='utf-8')
  if path.suffix == '.json':
    return json.loads(text)
  records = [json.loads(line) for line in text.splitlines() if line.strip()]
  if path.parent.name == 'collect':
    records.sort(key=lambda r: (str(r.get('task')), r.get('index', 0)))
  return records


def options(
  wanted: Mapping[str, Any], known: set[str], renamed: Mapping[str, str]
) -> list[str]:
  """Returns command-line options, each by the name that a checkout knows.

  Raises ValueError for a key that is there by neither name.
  """
  other = {**renamed, **{new: old for old, new in renamed.items()}}
  given = []
  for key, value in wanted.items():
    name = next((n for n in (key, other.get(key)) if n in known), None)
    if name is None:
      raise ValueError(
        f'config.{key} is not in the config; if it has another name there, add '
        'it to RENAMED or give --renamed old=new.'
      )
    given.append(f'--config.{name}={value}')
  return given


# Prints the dotted names of a config file's options.
_KEYS = """
import json, runpy, sys
def keys(part, before=''):
  for name, value in part.items():
    yield before + name
    if hasattr(value, 'items'):
      yield from keys(value, before + name + '.')
made = runpy.run_path(sys.argv[1])['get_config']()
print(json.dumps(sorted(keys(made))))
"""


class Checkout:
  """A checkout's root and its interpreter: its own .venv, else this one."""

  def __init__(self, root: pathlib.Path):
    self.root = root.resolve()
    if not (self.root / 'jaxagent' / 'main.py').is_file():
      raise FileNotFoundError(f'{root} is no checkout: no jaxagent/main.py.')
    own = self.root / '.venv' / 'bin' / 'python'
    self._python = str(own) if own.exists() else sys.executable

  def run(self, *words: str, env: Mapping[str, str] | None = None, **more):
    """Runs its interpreter in its root, on its own code."""
    return subprocess.run(**self._command(words, env), check=True, **more)

  def start(
    self, *words: str, env: Mapping[str, str] | None = None, **more
  ) -> subprocess.Popen:
    """Starts its interpreter likewise."""
    return subprocess.Popen(**self._command(words, env), **more)

  def _command(self, words: Sequence[str], env: Any) -> dict[str, Any]:
    env = {**os.environ, 'PYTHONPATH': str(self.root), **(env or {})}
    return {'args': [self._python, *words], 'cwd': self.root, 'env': env}

  def keys(self, config: str) -> set[str]:
    """Returns the dotted names of a config file's options."""
    done = self.run('-c', _KEYS, config, stdout=subprocess.PIPE, text=True)
    return set(json.loads(done.stdout))

  def revision(self) -> str:
    """Returns the commit's hash; '' if files differ from it."""
    ask: Callable[..., str] = lambda *words: subprocess.run(
      ['git', '-C', str(self.root), *words], capture_output=True, text=True
    ).stdout.strip()
    head = ask('rev-parse', '--short=12', 'HEAD')
    return '' if ask('status', '--porcelain') else head


def run(
  checkout: Checkout,
  recipe: str,
  base: pathlib.Path,
  renamed: Mapping[str, str],
  seed: int,
) -> pathlib.Path:
  """Runs a recipe unless this commit has; returns the work directory."""
  config, small = RECIPES[recipe]
  known = checkout.keys(config)
  older = {key: value for key, value in OLDER.items() if key in known}
  wanted = {'seed': seed, **SHARED, **small, **older}
  given = options(wanted, known, renamed)
  revision = checkout.revision()
  text = json.dumps([revision or str(checkout.root), config, given])
  digest = hashlib.sha256(text.encode()).hexdigest()[:8]
  work = base / f'{recipe}-{revision or "changed"}-{digest}'
  if revision and (work / 'summary.json').is_file():
    return work
  shutil.rmtree(work, ignore_errors=True)
  work.parent.mkdir(parents=True, exist_ok=True)
  log = work.with_suffix('.log')
  words = ('-m', 'jaxagent.main', f'--config={config}', f'--work_dir={work}')
  env = {
    'JAX_PLATFORMS': 'cpu',
    'JAX_COMPILATION_CACHE_DIR': str(base / 'compiled'),
  }
  with log.open('wb') as out:
    try:
      checkout.run(*words, *given, env=env, stdout=out, stderr=out)
    except subprocess.CalledProcessError as error:
      raise RuntimeError(f'{checkout.root}: {recipe} failed: {log}') from error
  return work


def main(argv: Sequence[str] | None = None) -> int:
  """Compares; returns the exit status."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--before', type=pathlib.Path, required=True)
  parser.add_argument('--after', type=pathlib.Path, required=True)
  parser.add_argument('--recipe', choices=(*RECIPES, 'both'), default='both')
  parser.add_argument('--renamed', nargs='*', default=(), metavar='OLD=NEW')
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--work_dir', default='workdir/same_digits')
  args = parser.parse_args(argv)
  renamed = {**RENAMED, **dict(pair.split('=', 1) for pair in args.renamed)}
  base = pathlib.Path(args.work_dir).resolve()
  failed = False
  for recipe in RECIPES if args.recipe == 'both' else (args.recipe,):
    works = [
      run(Checkout(root), recipe, base, renamed, args.seed)
      for root in (args.before, args.after)
    ]
    found = compare(*works)
    for line in found.differences[:MOST_SHOWN]:
      print(f'  {line}')
    if len(found.differences) > MOST_SHOWN:
      print(f'  and {len(found.differences) - MOST_SHOWN} more')
    print(
      f'{recipe}: {found.values:,} values, {found.rewards} rewards that are not '
      f'0, {found.added} added values, {len(found.differences)} differences'
    )
    if not found.rewards:
      print(f'{recipe}: every reward is 0, which shows little', file=sys.stderr)
    failed |= bool(found.differences) or not found.rewards
  return int(failed)


if __name__ == '__main__':
  sys.exit(main())
