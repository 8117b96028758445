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

# Tasks on which paper 001 evaluates and that have no folder here. It evaluates on
# mle-bench's low and medium competitions (its experiments/splits) without the ten it
# trains on: 51, of which 17 have one.
_LOW_WITHOUT = (
  'aptos2019-blindness-detection',
  'dog-breed-identification',
  'histopathologic-cancer-detection',
  'new-york-city-taxi-fare-prediction',
  'ranzcr-clip-catheter-line-classification',
  'siim-isic-melanoma-classification',
  'text-normalization-challenge-english-language',
  'text-normalization-challenge-russian-language',
  'the-icml-2013-whale-challenge-right-whale-redux',
)
_MEDIUM_WITHOUT = (
  'alaska2-image-steganalysis',
  'billion-word-imputation',
  'cassava-leaf-disease-classification',
  'cdiscount-image-classification-challenge',
  'champs-scalar-coupling',
  'facebook-recruiting-iii-keyword-extraction',
  'freesound-audio-tagging-2019',
  'h-and-m-personalized-fashion-recommendations',
  'herbarium-2020-fgvc7',
  'herbarium-2021-fgvc8',
  'herbarium-2022-fgvc9',
  'hotel-id-2021-fgvc8',
  'hubmap-kidney-segmentation',
  'icecube-neutrinos-in-deep-ice',
  'imet-2020-fgvc7',
  'inaturalist-2019-fgvc6',
  'iwildcam-2020-fgvc7',
  'kuzushiji-recognition',
  'petfinder-pawpularity-score',
  'plant-pathology-2021-fgvc8',
  'seti-breakthrough-listen',
  'tensorflow-speech-recognition-challenge',
  'tensorflow2-question-answering',
  'uw-madison-gi-tract-image-segmentation',
  'ventilator-pressure-prediction',
)
WITHOUT_FOLDER: Mapping[str, Mapping[str, str]] = {
  '001/evaluate': {
    **dict.fromkeys(_LOW_WITHOUT, 'low'),
    **dict.fromkeys(_MEDIUM_WITHOUT, 'medium'),
  }
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


def without_folder(
  texts: Iterable[str], known: Iterable[str] = ()
) -> dict[str, str]:
  """Returns the tasks that patterns ask for and that have no folder: name -> level.

  known: names of the tasks that have one, a user's own included.
  """
  asked = [
    text.partition(':')[2] for text in texts if text.startswith('paper:')
  ]
  found: dict[str, str] = {}
  for role, levels in WITHOUT_FOLDER.items():
    if any(
      fnmatch.fnmatchcase(role, v) or role.split('/')[0] == v for v in asked
    ):
      found |= levels
  return {name: found[name] for name in found if name not in set(known)}


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
  texts = tuple(dict.fromkeys(texts))
  if not any(map(is_pattern, texts)):
    return texts
  specs = list_specs()
  names = [
    matching(text, specs) if is_pattern(text) else (text,) for text in texts
  ]
  return tuple(dict.fromkeys(name for found in names for name in found))
