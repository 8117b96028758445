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
  files: Mapping[str, bytes] | None = None,
  every: int = 1,
  strength: tuple[float, float] = (1.8, 2.5),
) -> Mapping[str, Sequence[str]]:
  """Returns slot -> words of stand-ins' texts: praise, blame and insults of the lexicon.

  Insults are names of people, such as 'complainer', with a rating of -1.4 to -1.8: known
  by their endings, and by a plural that is rated, too.

  files: of PACKAGED; None for `language`'s own words.
  every: of how many words of praise and of blame one is taken.
  strength: least and greatest rating of those, of 4. The strongest are left out in any
    case: slurs are among them; most that are vulgar are above 1.3.
  """
  if not files:
    return language.LEXICON
  least, most = (round(10 * bound) for bound in strength)
  ratings = _ratings(files[FILE].decode())
  rated = {word for word, _ in ratings}
  found: dict[str, list[str]] = {'praise': [], 'blame': []}
  insults = []
  for word, rating in ratings:
    if least <= abs(rating) <= most:
      found['praise' if rating > 0 else 'blame'].append(word)
    names_people = len(word) > 6 and word.endswith(('er', 'or', 'ist'))
    if -18 <= rating <= -14 and names_people and word + 's' in rated:
      insults.append(word)
  return {
    **language.LEXICON,
    **{side: those[::every] for side, those in found.items()},
    'insult': insults,
  }


def _ratings(text: str) -> list[tuple[str, int]]:
  """Reads (word, mean rating in tenths) of words of the letters a to z."""
  rows = (line.split('\t')[:2] for line in text.splitlines())
  return [
    (word, round(10 * float(mean)))
    for word, mean in rows
    if word.isascii() and word.isalpha()
  ]
