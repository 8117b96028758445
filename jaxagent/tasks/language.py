"""Words and sentences of which the stand-ins' texts are made.

Every choice is drawn from a `RandomState`, so a seed gives the same text under
every version of Python and NumPy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

PEOPLE = tuple(
  """captain neighbour teacher driver farmer doctor sailor painter clerk widow
  stranger brother sister uncle cousin soldier keeper merchant gardener judge
  printer weaver shepherd student singer baker carpenter nurse porter pilot
  """.split()
)
THINGS = tuple(
  """lamp letter window ladder bottle garden bridge engine picture mirror coat
  candle kettle wagon barrel ticket basket hammer pillow curtain blanket bucket
  compass drawer feather fountain gate helmet island jacket kitchen lantern
  market needle oven paper quilt river saddle table umbrella valley wheel yard
  anchor bench chimney desk envelope fence glove harbour kite ledger map
  """.split()
)
PLACES = tuple(
  """cellar attic harbour forest station library chapel market island valley
  tower kitchen street corridor meadow school shore mill hall garden
  """.split()
)
ACTIONS = tuple(
  """carried opened followed watched moved painted sold found lost repaired
  counted covered lifted described remembered forgot dropped hid borrowed
  returned measured filled turned pushed closed cleaned visited left
  """.split()
)
PLAIN = tuple(
  """old small long open round quiet narrow wooden early late northern empty
  heavy usual common local second yellow distant broad short plain
  """.split()
)
PRAISE = tuple(
  """lovely wonderful brilliant charming delightful superb splendid excellent
  gorgeous fantastic amazing awesome beautiful great sweet perfect happy glad
  fun cute yummy grateful thrilled proud
  """.split()
)
BLAME = tuple(
  """awful terrible dreadful horrible nasty rotten miserable annoying boring
  stupid ugly lousy pathetic disgusting gloomy sad tired sick angry lonely
  painful broken sore upset
  """.split()
)
STRENGTH = ('so', 'very', 'really', 'quite', 'too', 'such', 'pretty')
LINKS = (
  'however', 'therefore', 'moreover', 'although', 'because', 'furthermore',
  'for example', 'in addition', 'on the other hand', 'as a result',
  'in conclusion', 'for this reason', 'by contrast', 'in other words',
)  # fmt: skip
INSULTS = tuple(
  """moron idiot clown fool twit dunce halfwit blockhead numbskull dimwit
  buffoon windbag loser coward fraud liar imbecile nitwit dolt simpleton
  """.split()
)

LEXICON: Mapping[str, Sequence[str]] = {
  'person': PEOPLE,
  'thing': THINGS,
  'place': PLACES,
  'acted': ACTIONS,
  'plain': PLAIN,
  'praise': PRAISE,
  'blame': BLAME,
  'very': STRENGTH,
  'link': LINKS,
  'insult': INSULTS,
}
_SLOT = re.compile(r'\{(\w+)\}')


def pick(rng: np.random.RandomState, choices: Sequence[str]) -> str:
  """Draws one of the choices, each as likely."""
  return choices[rng.randint(len(choices))]


def fill(
  rng: np.random.RandomState,
  template: str,
  lexicon: Mapping[str, Sequence[str]] = LEXICON,
) -> str:
  """Replaces each `{kind}` of a template with a word of that kind."""
  return _SLOT.sub(lambda slot: pick(rng, lexicon[slot.group(1)]), template)


def sentence(text: str, end: str = '.') -> str:
  """Gives the text a capital letter and an end."""
  return text[:1].upper() + text[1:] + end


def coined(
  rng: np.random.RandomState, syllables: Sequence[str], least: int, most: int
) -> str:
  """Makes a word of `least` to `most` syllables."""
  return ''.join(
    pick(rng, syllables) for _ in range(rng.randint(least, most + 1))
  )


def misspelt(rng: np.random.RandomState, word: str) -> str:
  """Swaps two letters, drops one or doubles one; short words stay."""
  if len(word) < 4:
    return word
  at = rng.randint(1, len(word) - 2)
  how = rng.randint(3)
  if how == 0:
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
  return word[:at] + (word[at] * 2 if how == 1 else '') + word[at + 1 :]
