"""Problem texts of published tasks: this project's own, or those of a user's checkout.

mle-bench's texts are Kaggle's, under the rules of each competition, so none is in this
repository: they are read from a checkout of https://github.com/openai/mle-bench, where
`mlebench/competitions/ID/` has a plain one, and one without the competition's story.
"""

from __future__ import annotations

import pathlib

from jaxagent.envs.specs import task_data
from jaxagent.types import TaskSpec

KINDS = ('own', 'published', 'obfuscated')
_FILES = {
  'published': 'description.md',
  'obfuscated': 'description_obfuscated.md',
}
COMPETITIONS = 'mlebench/competitions'


def described(spec: TaskSpec, kind: str, repo: str) -> TaskSpec:
  """Returns a task with the problem text of that kind.

  kind: of KINDS. repo: a checkout of mle-bench; not read for 'own'.

  Raises ValueError where the task has none, or the file is not there.
  """
  if kind == 'own':
    return spec
  if spec.details is None or spec.details.source.kind != 'mlebench':
    raise ValueError(
      f'task {spec.name} is none of mle-bench, which has no text of it; leave it out '
      'or take config.tasks.description=own.'
    )
  folder = pathlib.Path(repo).expanduser() / COMPETITIONS
  if not folder.is_dir():
    raise ValueError(
      f'config.tasks.mlebench_repo={repo!r} has no {COMPETITIONS}; give a checkout '
      'of https://github.com/openai/mle-bench.'
    )
  path = folder / spec.details.source.id / _FILES[kind]
  return task_data.with_problem(spec, _text(spec, path))


def _text(spec: TaskSpec, path: pathlib.Path) -> str:
  """Reads a description. Raises ValueError for one that cannot be used."""
  if not path.is_file():
    raise ValueError(
      f'task {spec.name}: {path} is not there; update the checkout, or take '
      'config.tasks.description=own.'
    )
  if task_data.is_pointer(path):
    raise ValueError(
      f'task {spec.name}: {path} is a Git-LFS pointer, not the text; run `git lfs '
      'pull` in that checkout.'
    )
  try:
    text = path.read_text('utf-8').strip()
  except UnicodeDecodeError as error:
    raise ValueError(f'task {spec.name}: {path} is no text: {error}.') from None
  if not text:
    raise ValueError(f'task {spec.name}: {path} is empty.')
  return text
