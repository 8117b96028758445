"""The model card of an exported policy: `README.md`, as the Hugging Face hub shows it.

Made of the files of the run alone; what one of them lacks, the card says. Places of the
run's machine (folders, addresses) are left out: a text of the run is printed by
`jaxagent.models.card_text` alone.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jaxagent
from jaxagent.files import model_files
from jaxagent.models import card_text
from jaxagent.models.card_text import cell, code
from jaxagent.models.config import ModelConfig

FILE = 'README.md'
MEASURES = (
  ('mean_reward', 'mean reward'),
  ('avg_at_k', 'avg@k'),
  ('best_at_k', 'best@k'),
  ('relative_gain', 'relative gain'),
  ('valid_action_rate', 'valid actions'),
)
POLICIES = (
  ('starter', 'starter script'),
  ('sft', 'after SFT'),
  ('rl', 'after RL'),
)
SPLITS = (('heldin', 'held-in'), ('heldout', 'held-out'))
# What a config means that names no task of a split (`jaxagent.config.tasks`).
_UNNAMED = {
  'heldin': 'every bundled task of that split',
  'heldout': 'every bundled task of that split, or none where the recipe holds none out',
}


def write(folder: pathlib.Path, text: str) -> None:
  """Writes a card into an exported folder."""
  (folder / FILE).write_text(text, encoding='utf-8')


def of_import(config: ModelConfig) -> str:
  """Returns the card of weights that no run has trained."""
  lines = [
    *_head(config),
    'These weights were converted by `jaxagent models`, and not trained by it: what',
    'the folder that they were imported from says of them holds.',
    '',
    '## Versions',
    '',
    f'jaxagent {jaxagent.__version__}',
  ]
  return '\n'.join(lines) + '\n'


def of_run(
  work: pathlib.Path,
  config: ModelConfig,
  checkpoint: pathlib.Path,
  *,
  adapters: bool = False,
  base: str = '',
) -> str:
  """Returns the card of a run's policy.

  work: the run's directory. checkpoint: the folder in it that the weights are from; what
  is evaluated of a later stage than its own is left out. adapters: whether the adapters
  alone are exported. base: repository of their base on the hub, OWNER/NAME; '' where
  none is named.
  """
  options, summary = _read(work / 'config.json'), _read(work / 'summary.json')
  by_rl = _stage(checkpoint) == 'rl'
  names = [name for name, _ in POLICIES if by_rl or name != 'rl']
  records = [*_evaluated(work, [name for name in names if name != 'starter'])]
  lines = [
    *_head(config, adapters=adapters, by_rl=by_rl, base=base),
    *_what(options, _below(checkpoint, work), by_rl=by_rl),
    '',
    '## Trained and evaluated on',
    '',
    *_tasks(records, options),
    '',
    '## Results',
    '',
    *_results(summary, names),
    *_another(work, checkpoint, summary),
    '',
    '## How far to trust it',
    '',
    *_trust(records, options, summary),
    '',
    '## How to audit it',
    '',
    *_audit(work, checkpoint),
    '',
    '## Versions',
    '',
    *_versions(summary),
    '',
    '## Config',
    '',
    *_config(options, summary),
  ]
  return '\n'.join(lines) + '\n'


def _head(
  config: ModelConfig,
  *,
  adapters: bool = False,
  by_rl: bool = False,
  base: str = '',
) -> list[str]:
  library = 'peft' if adapters else 'transformers'
  kind = f'adapters of rank {config.lora_rank} for a' if adapters else 'a'
  return [
    '---',
    f'library_name: {library}',
    *([f'base_model: {base}'] if base else ()),
    'pipeline_tag: text-generation',
    'tags:',
    '- jaxagent',
    *(['- reinforcement-learning'] if by_rl else ()),
    '---',
    '',
    f'# {kind[0].upper()}{kind[1:]} {cell(config.model_type)} model of '
    f'{config.replace(lora_rank=0).num_params():,} weights',
    '',
  ]


def _what(
  options: Mapping[str, Any], where: str, *, by_rl: bool
) -> Iterator[str]:
  """Yields what the weights are, which stage has trained them, and how to prompt."""
  style = code(_option(options, 'rollout.prompt_style'))
  if by_rl:
    yield (
      'A policy that jaxagent trained by reinforcement learning to do machine-learning'
    )
    yield 'engineering: its actions are programs, and their results the reward.'
    sampled = (
      'Sampled at temperature '
      f'{cell(_option(options, "rollout.temperature"))} in training; prompts'
    )
  else:
    yield (
      'A policy that jaxagent fine-tuned to do machine-learning engineering: its actions'
    )
    yield 'are programs. It was fine-tuned on demonstrations, not trained by RL.'
    sampled = 'Prompts'
  yield ''
  yield f'Weights of the checkpoint {code(where)}. {sampled} of style {style}.'


def _tasks(
  records: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
) -> Iterator[str]:
  """Yields the tasks of each split: as evaluated, or else as the config names them."""
  found: dict[str, set[str]] = {}
  for record in records:
    found.setdefault(str(record.get('split')), set()).add(
      str(record.get('task'))
    )
  for split, title in SPLITS:
    named = sorted(found.get(split, ()))
    if named:
      yield f'- {title}: {", ".join(map(cell, named))}'
    else:
      asked = cell(_option(options, f'tasks.{split}')) or _UNNAMED[split]
      yield f'- {title}: {asked} (as configured; not evaluated)'


def _results(
  summary: Mapping[str, Any], policies: Sequence[str]
) -> Iterator[str]:
  rows = [
    (name, title, summary[policy][split])
    for policy, name in POLICIES
    if policy in policies
    for split, title in SPLITS
    if isinstance(_at(summary, policy, split), Mapping)
  ]
  if not rows:
    yield (
      'The run has no `summary.json` with results of these weights: they were not '
      'evaluated, or the run had not ended when they were exported.'
    )
    return
  yield f'| policy | tasks | {" | ".join(title for _, title in MEASURES)} |'
  yield '|---' * (2 + len(MEASURES)) + '|'
  for name, title, section in rows:
    cells = (_interval(section.get(measure)) for measure, _ in MEASURES)
    yield f'| {name} | {title} | {" | ".join(cells)} |'
  k, each = (
    _at(summary, 'evaluation', n) for n in ('k', 'trajectories_per_task')
  )
  yield ''
  yield (
    f'Mean [95 % interval] (values). k is {cell(k)}, with '
    f'{cell(each)} trajectories a task; avg@k and best@k '
    'are normalised: 0 is the starter script, 1 the best known solution. The '
    'intervals are for other runs of this policy on these tasks, not for other tasks '
    'or training seeds.'
  )
  if any(
    'needs' in found
    for *_, section in rows
    for found in section.values()
    if isinstance(found, Mapping)
  ):
    yield (
      'needs N: too few trajectories of a task; from N on such intervals hold the true '
      'value in 93 % of simulated cases.'
    )


def _trust(
  records: Sequence[Mapping[str, Any]],
  options: Mapping[str, Any],
  summary: Mapping[str, Any],
) -> Iterator[str]:
  tiers = {str(_at(summary, 'isolation_tier'))} - {'None'}
  for record in records:
    steps = record.get('steps')
    for step in steps if isinstance(steps, list) else ():
      if isinstance(step, Mapping) and step.get('tier'):
        tiers.add(str(step['tier']))
  names = ', '.join(map(cell, sorted(tiers, reverse=True))) or 'unknown'
  yield (
    f'- Isolation tier of the executions: {names} (T3 strongest; T0 is no containment).'
  )
  yield f'- Training seed: {cell(_option(options, "seed"))}; one seed, one run.'
  stand_ins = _at(summary, 'stand_ins')
  if isinstance(stand_ins, list) and stand_ins:
    listed = ', '.join(map(cell, stand_ins))
    yield f'- Scripts stood in for language models: {listed}.'
  untrusted = _at(summary, 'untrusted')
  if isinstance(untrusted, Mapping):
    for task, reason in sorted(untrusted.items()):
      yield f'- Rewards of {cell(task)} may have been cheated: {cell(reason)}.'


def _audit(work: pathlib.Path, checkpoint: pathlib.Path) -> Iterator[str]:
  yield "With the run's work directory and the package:"
  yield ''
  yield '```bash'
  yield 'jaxagent audit WORK_DIR    # derives every reward again from the traces'
  yield 'jaxagent why WORK_DIR      # how each rollout ended'
  yield '```'
  if last := _last_hash(work, checkpoint):
    name, digest = last
    yield ''
    yield (
      'The records are chained by SHA-256. The last one that these weights were '
      f'trained on, in {code(name)}, has the hash {code(digest)}; a work directory with '
      "another one is not this model's."
    )


def _versions(summary: Mapping[str, Any]) -> Iterator[str]:
  versions = _at(summary, 'versions')
  if isinstance(versions, Mapping) and versions:
    listed = (f'{cell(k)} {cell(v)}' for k, v in versions.items())
    yield f'Trained with {", ".join(listed)}.'
  yield f'Exported by jaxagent {jaxagent.__version__}.'


def _config(
  options: Mapping[str, Any], summary: Mapping[str, Any]
) -> Iterator[str]:
  if not options:
    yield 'The run has no `config.json`.'
    return
  if digest := _at(summary, 'config_sha'):
    yield f'Digest of what decides the results: {code(digest)}.'
    yield ''
  yield '```json'
  # A fence cannot be closed from within: JSON writes a line break as \n.
  yield json.dumps(card_text.public(options), indent=1, sort_keys=True)
  yield '```'


def _interval(value: Any) -> str:
  if not isinstance(value, Mapping) or value.get('mean') is None:
    return '-'
  try:
    mean, low, high = (float(value[k]) for k in ('mean', 'low', 'high'))
  except (KeyError, TypeError, ValueError):
    return '-'
  needs = ''
  if 'needs' in value:
    needs = f'; needs {cell(value["needs"] or "more than 128")}'
  return f'{mean:.3f} [{low:.3f}, {high:.3f}] ({cell(value.get("n"))}{needs})'


def _evaluated(
  work: pathlib.Path, policies: Sequence[str]
) -> Iterator[Mapping[str, Any]]:
  """Yields the records of the policies' evaluations that can be read."""
  for policy in policies:
    try:
      found = json.loads((work / 'eval' / f'{policy}.json').read_text())
    except (OSError, ValueError):
      continue
    for record in found if isinstance(found, list) else ():
      if isinstance(record, Mapping):
        yield record


def _stage(checkpoint: pathlib.Path) -> str:
  """'rl' or 'sft': the stage whose folder `checkpoints` has a checkpoint."""
  return checkpoint.parent.parent.name


def _updates(checkpoint: pathlib.Path) -> int | None:
  """Updates of RL that a checkpoint has seen; None for one of SFT."""
  number = checkpoint.name.removeprefix('step_')
  if _stage(checkpoint) != 'rl' or not number.isdecimal():
    return None
  return int(number)


def _another(
  work: pathlib.Path, checkpoint: pathlib.Path, summary: Mapping[str, Any]
) -> Iterator[str]:
  """Yields a warning where the policy of the table is not the one of the weights."""
  updates = _updates(checkpoint)
  try:
    evaluated = int((work / 'eval' / 'rl.updates').read_text())
  except (OSError, ValueError):
    return
  if updates is not None and updates != evaluated and 'rl' in summary:
    yield ''
    yield (
      f'**The table is not of these weights**: they have seen {updates} updates, the '
      f'policy that was evaluated {evaluated}.'
    )


def _last_hash(
  work: pathlib.Path, checkpoint: pathlib.Path
) -> tuple[str, str] | None:
  """(trace file, hash of its last record) of the last update of a checkpoint."""
  updates = _updates(checkpoint)
  if not updates:
    return None
  file = work / 'rl' / 'traces' / f'update_{updates - 1:06d}.jsonl'
  try:
    record = json.loads(file.read_text().splitlines()[-1])
    return _below(file, work), str(record['hash'])
  except (OSError, ValueError, LookupError, TypeError):
    return None


def _read(file: pathlib.Path) -> dict[str, Any]:
  """A JSON object of the run; {} where there is none, or a damaged one."""
  try:
    return model_files.read_json(file)
  except (OSError, ValueError):
    return {}


def _at(node: Any, *keys: str) -> Any:
  for key in keys:
    node = node.get(key) if isinstance(node, Mapping) else None
  return node


def _option(options: Mapping[str, Any], name: str) -> Any:
  found = _at(options, *name.split('.'))
  if isinstance(found, Sequence) and not isinstance(found, str):
    return ', '.join(map(str, found))
  return 'unknown' if found is None else found


def _below(path: pathlib.Path, work: pathlib.Path) -> str:
  """A path as seen from the work directory, without the machine's part."""
  try:
    return path.absolute().relative_to(work.absolute()).as_posix()
  except ValueError:
    return path.name
