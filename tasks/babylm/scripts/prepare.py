"""Prepares `babylm`: which byte comes next?

Of each test file 257 bytes at a time are cut and the next 257 left out, and 2,000 of
these pieces are drawn: 256 bytes are a context, the next one is the answer, of which
a probability for each of 256 bytes is asked. No piece begins where another ends, or it
would show what comes after that one's answer. Training and development files of ten
sources lie as the originals do, the test files nowhere.

The stand-in's sources write sentences of a small grammar with rare words of their
own: a person who was named comes again later, a verb asks for its preposition.
"""

from __future__ import annotations

import numpy as np

from jaxagent.tasks import kit, language

SOURCE = kit.Source(
  id='babylm',
  url='https://github.com/babylm/babylm.github.io',
  rules='of its ten sources, which the page names',
  files=('babylm_data.zip (with babylm_10M, babylm_dev and babylm_test)',),
  mlebench=False,
)
SOURCES = (
  'aochildes', 'bnc_spoken', 'cbt', 'children_stories', 'gutenberg',
  'open_subtitles', 'qed', 'simple_wikipedia', 'switchboard', 'wikipedia',
)  # fmt: skip
PARTS = {'train': 'babylm_10M', 'dev': 'babylm_dev', 'test': 'babylm_test'}
CONTEXT, COUNT, SYMBOLS = 256, 2000, 256
PIECE = CONTEXT + 1
SHAPES = (
  'the {plain} {person} {acted} the {thing} {near} the {place}',
  'the {person} was {very} {praise} and {acted} a {thing}',
  'no {person} {acted} the {thing} that the {own} {acted}',
  '{link}, the {thing} was {plain} and the {place} was {blame}',
  'a {person} and a {own} went {near} the {place}',
  'was the {thing} {near} the {place} {very} {plain}',
)
AGAIN = ('so the {who} {acted} it', 'the {who} said that it was {praise}')
SYLLABLES = ('ka', 'lo', 'mi', 'ren', 'tu', 'shi', 'var', 'no', 'pel', 'dra')


def document(rng, style):
  """A few sentences on one person, on a line."""
  lexicon = {**language.LEXICON, **style, 'who': (language.pick(rng, style['own']),)}
  out = []
  for k in range(rng.randint(2, 6)):
    shapes = AGAIN if k and rng.rand() < 0.4 else style['shapes']
    text = language.fill(rng, language.pick(rng, shapes), lexicon)
    if k == 0:
      text = f'{lexicon["who"][0]} is {text}'
    out.append(language.sentence(text, '?' if text.startswith('was') else '.'))
  return ' '.join(out) + '\n'


def standin():
  rng = np.random.RandomState(139)
  files = {part: {} for part in PARTS}
  for name in SOURCES:
    style = {
      'own': [language.coined(rng, SYLLABLES, 2, 4) for _ in range(25)],
      'near': ('near', 'behind', 'under', 'beyond', 'beside'),
      'shapes': [SHAPES[k] for k in rng.permutation(len(SHAPES))[:4]],
    }
    for part, size in (('train', 150_000), ('dev', 15_000), ('test', 120_000)):
      lines, length = [], 0
      while length < size:
        lines.append(document(rng, style))
        length += len(lines[-1])
      files[part][name] = ''.join(lines).encode()
  return parts(files)


def pieces(data):
  """Pieces of 257 bytes with as many between two of them, uint8 [N, 257]."""
  flat = np.frombuffer(data, np.uint8)
  starts = np.arange(0, len(flat) - CONTEXT, 2 * PIECE)
  return flat[starts[:, None] + np.arange(PIECE)]


def parts(files):
  """files: part -> source -> bytes."""
  cut = [pieces(files['test'][name]) for name in SOURCES]
  every = np.concatenate(cut)
  if len(every) < COUNT:
    raise kit.DataMissing(
      f'babylm_test holds {len(every)} pieces of {PIECE} bytes; the task '
      f'takes {COUNT}: the download is not whole.'
    )
  drawn = every[np.random.RandomState(0).permutation(len(every))[:COUNT]]
  uniform = np.full((COUNT, SYMBOLS), 1 / SYMBOLS, dtype=np.float32)
  public = {
    f'babylm_data/{PARTS[part]}/{name}.{part}': files[part][name]
    for part in ('train', 'dev')
    for name in SOURCES
  }
  return kit.Parts(
    {
      **public,
      'contexts.npy': kit.array_bytes(drawn[:, :CONTEXT]),
      'sample_submission.npy': kit.array_bytes(uniform),
    },
    {'symbol': drawn[:, CONTEXT].astype(np.int64)},
    # Equal contexts are in the same half.
    groups=[row[:CONTEXT].tobytes().hex() for row in drawn],
  )


def raw(folder):
  home = kit.unpacked(folder, 'babylm_data')
  return parts(
    {
      part: {
        name: kit.original(home / inside, f'{name}.{part}').read()
        for name in SOURCES
      }
      for part, inside in PARTS.items()
    }
  )


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, None, raw)
