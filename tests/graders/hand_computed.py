"""Small answers and submissions of the graders whose scores were worked out by
hand: (answers, submission, score) by name, in the source's format."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd


def csv(text: str, **options) -> pd.DataFrame:
  return pd.read_csv(io.StringIO(text), **options)


def _one_hot(places) -> pd.DataFrame:
  """CIFAR-10's form: no name for the index, columns 0 to 9."""
  table = pd.DataFrame(np.full((len(places), 10), 0.05), columns=range(10))
  for row, place in enumerate(places):
    table.loc[row, place] = 0.55
  return table.reset_index(names='Unnamed: 0').rename(columns=str)


_CONTRAILS = csv("""record_id,encoded_pixels,height,width
1000216489776414077,1 4,4,4
1000216489776414078,-,4,4
1000603527582775543,-,4,4
""")
_OVERLAP = _CONTRAILS.assign(encoded_pixels=['3 4', '-', '1 1'])
_POINTERS = {'': np.array([[[0, 0, 1], [1, 1, 1], [2, 2, 2]]])}
_GUESSED = {'': np.array([[[0, 0, 0], [1, 1, 1], [2, 2, 0]]])}

CASES = {
  # Places 0 1 2 5 for labels 0 1 2 2: 3 / 4.
  'cifar10': (
    csv('id,label\n0,0\n1,1\n2,2\n3,2\n'),
    _one_hot([0, 1, 2, 5]),
    0.75,
  ),
  # 0 for 0, 1 for 1, 0 for 1, and a tie, which is the first: 3 / 4.
  'imdb': (
    csv('idx,label\n0,0\n1,1\n2,1\n3,0\n'),
    csv('idx,0,1\n0,0.9,0.1\n1,0.4,0.6\n2,0.8,0.2\n3,0.5,0.5\n'),
    0.75,
  ),
  # 3, 7 and 39 of four: 3 / 4.
  'ogbn-arxiv': (csv('0\n3\n7\n7\n39\n'), csv('0\n3\n7\n8\n39\n'), 0.75),
  # (10000 + 5000 + 0) / 3.
  'house-price': (
    csv('Id,SalePrice\n1169,100000\n1170,200000\n1171,300000\n'),
    csv('Id,SalePrice\n1169,110000\n1170,195000\n1171,300000\n'),
    5000.0,
  ),
  # cohesion: errors 1, 1, RMSE 1; syntax: 0, 2, RMSE sqrt(4 / 2); the other
  # four 0: (1 + 1.414214) / 6.
  'feedback': (
    csv(
      'text_id,cohesion,syntax,vocabulary,phraseology,grammar,conventions\n'
      'A1,3,3,3,3,3,3\nB2,4,2,4,4,4,4\n'
    ),
    csv(
      'text_id,cohesion,syntax,vocabulary,phraseology,grammar,conventions\n'
      'A1,4,3,3,3,3,3\nB2,3,4,4,4,4,4\n'
    ),
    0.40237,
  ),
  # 1 / 1.5, 0 / 2 and 2 / 3 in percent: 100 (0.666667 + 0.666667) / 3.
  'amp-parkinsons-disease-progression-prediction': (
    csv('prediction_id,rating,visit_month\na,0,0\nb,1,6\nc,3,12\n'),
    csv('prediction_id,rating,visit_month\na,1,0\nb,1,6\nc,1,12\n'),
    44.44444,
  ),
  # Hits at 1 and 3 of two: (1 + 2 / 3) / 2; a hit at 2 of one: 1 / 2; the mean
  # of 0.833333 and 0.5.
  'fathomnet': (
    csv('id,categories\nu-1,1 2\nu-2,7\n'),
    csv('id,categories,osd\nu-1,2 9 1,0.1\nu-2,3 7,0.9\n'),
    0.66667,
  ),
  # 2 common pixels of 4 + 4, then 0 + 0, then 0 + 1: 2 * 2 / 9.
  'google-research-identify-contrails-reduce-global-warming': (
    _CONTRAILS,
    _OVERLAP,
    0.44444,
  ),
  # 4 / 8, 1 for two empty masks, 0 (0.000001): 1.500001 / 3.
  'identify-contrails': (_CONTRAILS, _OVERLAP, 0.5),
  # 7 of 9 pointers.
  'CLRS': (_POINTERS, _GUESSED, 0.77778),
  # (1 - 0)^2 + (2 - 0)^2 over 9.
  'CLRS:mse': (_POINTERS, _GUESSED, 0.55556),
  # Probabilities 1/2 and 1/4: 2^((1 + 2) / 2).
  'babylm': (
    {'': np.array([0, 1])},
    {'': np.array([[0.5, 0.5], [0.75, 0.25]])},
    2.82843,
  ),
  # Cut at 0.5: 0 1 0 0 for 0 1 1 0.
  'detecting-insults-in-social-commentary:accuracy': (
    csv('Comment,Insult\n"a, b",0\n"c\nd",1\n"""e""",1\nf,0\n'),
    csv('Comment,Insult\n"a, b",0.2\n"c\nd",0.7\n"""e""",0.4\nf,0\n'),
    0.75,
  ),
  # The first and the third of four.
  'spaceship-titanic:mlagentbench': (
    csv(
      'PassengerId,Transported\n0001_01,True\n0002_01,False\n'
      '0003_01,True\n0003_02,True\n'
    ),
    csv(
      'PassengerId,Transported\n0001_01,True\n0002_01,True\n'
      '0003_01,True\n0003_02,False\n'
    ),
    0.5,
  ),
}
LOWER_IS_BETTER = {
  'house-price',
  'feedback',
  'amp-parkinsons-disease-progression-prediction',
  'CLRS:mse',
  'babylm',
}


def write(path, data) -> None:
  """Writes a table as the starters do, or arrays."""
  if isinstance(data, dict):
    np.save(path, data['']) if list(data) == [''] else np.savez(path, **data)
    return
  header = ['' if c == 'Unnamed: 0' else c for c in data.columns]
  data.to_csv(path, index=False, header=header)
