"""Made-up essays whose quality shows in how they are written."""

from __future__ import annotations

import numpy as np

from jaxagent.tasks import language

_CLAIMS = (
  'the {plain} {thing} belongs in the {place}',
  'a {person} should keep the {thing}',
  'every {person} {acted} the {thing} for a {plain} reason',
  'the {place} is {plain} without a {thing}',
  'people need the {thing} more than the {thing}',
)
_REASONS = (
  'it helps the {person} in the {place}',
  'the {person} {acted} the {plain} {thing} each day',
  'no {plain} {place} can do without the {thing}',
  'a {person} who {acted} the {thing} knows the {place}',
)
_RARE = tuple(
  """consequently substantial deliberate inevitable considerable perspective
  comprehensive circumstance fundamental acknowledge sufficient contradictory
  """.split()
)


def essay(rng: np.random.RandomState, quality: float, topic: int = 0) -> str:
  """Writes an essay of a quality from about -2.5 to 2.5.

  Better ones are longer, connect their sentences, repeat less, use rarer words
  and have fewer misspellings; each of the five follows the quality with noise of
  its own, so that none of them alone tells it.

  topic: which claims the essay leans to.
  """
  noisy = quality + rng.normal(0, 0.7, 5)
  sentences = int(np.clip(np.round(9 + 3.0 * noisy[0]), 2, 24))
  linked = 0.18 + 0.11 * noisy[1]
  again = 0.30 - 0.11 * noisy[2]
  rare = 0.12 + 0.07 * noisy[3]
  wrong = float(np.clip(0.06 - 0.026 * noisy[4], 0.0, 0.2))
  texts: list[str] = []
  for _ in range(sentences):
    if texts and rng.rand() < again:
      texts.append(texts[rng.randint(len(texts))])
      continue
    claim = _CLAIMS[(topic + rng.randint(2)) % len(_CLAIMS)]
    text = language.fill(rng, claim)
    if rng.rand() < linked:
      reason = language.fill(rng, language.pick(rng, _REASONS))
      link = language.pick(rng, ('because', 'since', 'although', 'while'))
      text = f'{text} {link} {reason}'
    if rng.rand() < linked:
      text = f'{language.pick(rng, language.LINKS)}, {text}'
    if rng.rand() < rare:
      text = f'{text}, which is {language.pick(rng, _RARE)}'
    texts.append(text)
  return _written(rng, texts, wrong)


def _written(rng: np.random.RandomState, texts: list[str], wrong: float) -> str:
  """Joins sentences to paragraphs, with a share of words misspelt."""
  out = []
  for text in texts:
    words = [
      language.misspelt(rng, w) if rng.rand() < wrong else w
      for w in text.split()
    ]
    out.append(language.sentence(' '.join(words)))
  size = rng.randint(3, 6)
  groups = [out[k : k + size] for k in range(0, len(out), size)]
  return '\n\n'.join(' '.join(group) for group in groups)
