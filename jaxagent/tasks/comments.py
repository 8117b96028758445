"""Made-up comments of a discussion, some of them rude in one or several ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from jaxagent.tasks import language

# A way to be rude -> phrases; `@` is the rude word, of WORDS or the slot of that name. The
# people of `identity_hate` are invented.
RUDE = {
  'insult': (
    'you are a {blame} @', 'you @, nobody asked you', 'shut up you {blame} @',
    'only a @ like you would write that', 'what a @ you are', 'go away you @',
  ),
  'obscene': (
    'this is @ and you know it', 'i do not give a @', 'what a load of @',
    'get your @ out of this {place}', 'full of @ from the first line',
  ),
  'threat': (
    'i will find you and your {thing}', 'you will be sorry when i come',
    'i am going to hurt you', 'wait until i get hold of you in the {place}',
    'your {place} will burn', 'i know where you live',
  ),
  'identity_hate': (
    'all @ are {blame}', '@ like you should leave the {place}',
    'you @ ruin every {thing}', 'keep the @ out of the {place}',
  ),
}  # fmt: skip
WORDS = {
  'obscene': ('crap', 'bollocks', 'arse', 'bullcrap', 'damn', 'piss', 'turd'),
  'threat': ('',),
  'identity_hate': ('northlanders', 'islanders', 'hillfolk', 'marshmen'),
}
# Harmless, some with words of the rude ones.
CALM = (
  'the {person} {acted} the {thing}', 'see the article on the {place}',
  'thank you for the {praise} {thing}', 'the {plain} {thing} has no source',
  'i {acted} the {thing} and it is {very} {praise}', 'please read the {place} page',
  'the {person} in the film is a {insult}', 'i was a {insult} to buy that {thing}',
  'the {thing} is {blame}, and so is the {place}', 'that {thing} hurt my hand',
  'the islanders {acted} their {place}', 'they burn a {thing} in the {place}',
  'you are right about the {thing}', 'you should find the {person} in the {place}',
  'nobody knows where the {person} lived', 'do you know the {plain} {place}?',
  'i do not agree with the {person}', 'what a {praise} {thing} you have',
)  # fmt: skip


def _disguised(rng: np.random.RandomState, word: str) -> str:
  """Writes a rude word as people do: plain, misspelt, starred or doubled."""
  how = rng.rand()
  if how < 0.2:
    return language.misspelt(rng, word)
  if how < 0.3:
    return word[:1] + '*' + word[2:]
  return word + language.pick(rng, ('', '', '', 's', 'face'))


def phrase(
  rng: np.random.RandomState, kind: str, words: Mapping[str, Sequence[str]]
) -> str:
  """Writes a rude phrase of a kind of RUDE; words: of each slot."""
  word = language.pick(rng, WORDS.get(kind) or words[kind])
  text = language.fill(rng, language.pick(rng, RUDE[kind]), words)
  return text.replace('@', _disguised(rng, word)) if word else text


def comment(
  rng: np.random.RandomState,
  kinds: Sequence[str],
  calm: Sequence[str] = CALM,
  loud: bool = False,
  words: Mapping[str, Sequence[str]] = language.LEXICON,
) -> str:
  """Writes a comment that is rude in these ways; for none of them it is harmless.

  calm: templates of the phrases around, one to five.
  loud: whether the rude phrases are in capitals, with a second one of each kind.
  words: slot -> words.
  """
  rude = [
    phrase(rng, kind, words) for kind in kinds for _ in range(2 if loud else 1)
  ]
  texts = [text.upper() + '!!!' if loud else text for text in rude]
  for _ in range(rng.randint(1, 6)):
    texts.append(language.fill(rng, language.pick(rng, calm), words))
  rng.shuffle(texts)
  joint = language.pick(rng, ('. ', ', ', '\n\n', ' and ', '... ', '. '))
  text = joint.join(texts)
  if rng.rand() < 0.15:
    text = f'"{text}"'
  return language.sentence(text, language.pick(rng, ('', '.', '!', ' \n')))
