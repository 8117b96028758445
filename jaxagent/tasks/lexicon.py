"""Words by how good or bad people rate them, of the lexicon that vaderSentiment ships.

Its file is read from a folder of packages and never imported (`kit.Packaged`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxagent.tasks import kit, language

FILE = 'vaderSentiment/vader_lexicon.txt'
PACKAGED = kit.Packaged(
  'vaderSentiment',
  '3.3.2',
  {FILE: '1ec9c6e9ee19aade328f8beb393a6afa71a5bb3acf7d3cc22d4ef568df374bf5'},
)


def words(
  files: Mapping[str, bytes] | None = None, every: int = 1
) -> Mapping[str, Sequence[str]]:
  """Returns slot -> words of stand-ins' texts, praise and blame of the lexicon.

  Those are the words with a mean rating of 1.8 to 2.5 of 4; the strongest are left out:
  slurs are among them.

  files: of PACKAGED; None for `language`'s own words.
  every: of how many words one is taken.
  """
  if not files:
    return language.LEXICON
  rated: dict[str, list[str]] = {'praise': [], 'blame': []}
  for line in files[FILE].decode().splitlines():
    word, mean = line.split('\t')[:2]
    rating = round(10 * abs(float(mean)))
    if word.isascii() and word.isalpha() and 18 <= rating <= 25:
      rated['praise' if float(mean) > 0 else 'blame'].append(word)
  return {
    **language.LEXICON,
    **{side: found[::every] for side, found in rated.items()},
  }
