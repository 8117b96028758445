"""Patterns that choose tasks: `paper:000/train`, `suite:mlebench/low`, `name:tab*`."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence

from jaxagent.types import TaskSpec

# mle-bench's levels of the competitions that the papers name (its `splits`).
_LOW = (
  'aerial-cactus-identification',
  'denoising-dirty-documents',
  'detecting-insults-in-social-commentary',
  'dogs-vs-cats-redux-kernels-edition',
  'jigsaw-toxic-comment-classification-challenge',
  'leaf-classification',
  'mlsp-2013-birds',
  'nomad2018-predict-transparent-conductors',
  'plant-pathology-2020-fgvc7',
  'random-acts-of-pizza',
  'spooky-author-identification',
  'tabular-playground-series-dec-2021',
  'tabular-playground-series-may-2022',
)
_MEDIUM = (
  'AI4Code',
  'chaii-hindi-and-tamil-question-answering',
  'google-quest-challenge',
  'jigsaw-unintended-bias-in-toxicity-classification',
  'learning-agency-lab-automated-essay-scoring-2',
  'lmsys-chatbot-arena',
  'multi-modal-gesture-recognition',
  'osic-pulmonary-fibrosis-progression',
  'statoil-iceberg-classifier-challenge',
  'tgs-salt-identification-challenge',
  'tweet-sentiment-extraction',
  'us-patent-phrase-to-phrase-matching',
  'whale-categorization-playground',
)
LEVELS: Mapping[str, str] = {
  **dict.fromkeys(_LOW, 'low'),
  **dict.fromkeys(_MEDIUM, 'medium'),
  'google-research-identify-contrails-reduce-global-warming': 'high',
  'spaceship-titanic': 'dev',
}


def is_pattern(text: str) -> bool:
  """Whether a text is a pattern and no task's name, which has no colon."""
  return ':' in text


def _papers(spec: TaskSpec) -> set[str]:
  """Returns what `paper:` finds a task by: 000, 000/train, 000/evaluate."""
  found = set()
  for paper, role in (spec.details.papers if spec.details else {}).items():
    roles = ('train', 'evaluate') if role == 'both' else (role,)
    found |= {paper, *(f'{paper}/{r}' for r in roles)}
  return found


def _suites(spec: TaskSpec) -> set[str]:
  """Returns what `suite:` finds a task by: mlebench, mlebench/low."""
  if spec.details is None:
    return {spec.layout} if spec.layout == 'mlagentbench' else set()
  source = spec.details.source
  found = {source.kind}
  if source.kind == 'mlebench' and source.id in LEVELS:
    found.add(f'{source.kind}/{LEVELS[source.id]}')
  return found


_WORDS: Mapping[str, Callable[[TaskSpec], set[str]]] = {
  'paper': _papers,
  'suite': _suites,
  'kind': lambda spec: {spec.kind},
  'modality': lambda spec: {spec.modality},
  'name': lambda spec: {spec.name},
}


def matching(pattern: str, specs: Sequence[TaskSpec]) -> tuple[str, ...]:
  """Returns the names of the tasks that a pattern chooses, in their order.

  pattern: WORD:VALUE, the value with * and ? as in file names; words are paper,
    suite, kind, modality and name.

  Raises:
    ValueError: an unknown word, or no task; the message has the choices.
  """
  word, _, value = pattern.partition(':')
  if word not in _WORDS:
    raise ValueError(
      f'{pattern!r} is no pattern; it begins with one of '
      f'{", ".join(f"{w}:" for w in _WORDS)}.'
    )
  values_of = _WORDS[word]
  found = tuple(
    spec.name
    for spec in specs
    if any(fnmatch.fnmatchcase(v, value) for v in values_of(spec))
  )
  if not found:
    known = sorted(set().union(*map(values_of, specs)) - {''})
    raise ValueError(
      f'{pattern!r} matches no task; of {word} there are: '
      f'{", ".join(known) or "none"}.'
    )
  return found


def expand(
  texts: Iterable[str], list_specs: Callable[[], Sequence[TaskSpec]]
) -> tuple[str, ...]:
  """Replaces each pattern by the tasks that it matches, each once.

  list_specs: gives all tasks; asked where there is a pattern.

  Raises: ValueError as `matching`.
  """
  texts = tuple(texts)
  if not any(map(is_pattern, texts)):
    return texts
  specs = list_specs()
  names = [
    matching(text, specs) if is_pattern(text) else (text,) for text in texts
  ]
  return tuple(dict.fromkeys(name for found in names for name in found))
