"""Functions of tasks' starters, and ways to write them anew.

For scripts without a model line. A function is known by its name; the task whose
starter has it is found by that alone.
"""

from collections.abc import Mapping, Sequence

from jaxagent.stand_ins.ways import graphs, pictures, programs, texts
from jaxagent.stand_ins.ways.way import Way

# Function -> ways to compute it.
WAYS: Mapping[str, Sequence[Way]] = {
  'convolve': programs.CONVOLVE,
  'attend': programs.ATTEND,
  'generate': programs.GENERATE,
  'mask_of': pictures.MASK_OF,
  'contrail_of': pictures.CONTRAIL_OF,
  'ordered': texts.ORDERED,
  'part_of': texts.PART_OF,
  'answer_of': texts.ANSWER_OF,
  'pointers_of': graphs.POINTERS_OF,
}
_PRECISIONS = (('np.float32', 0.6), ('np.float64', 0.4), ('np.float16', 0.1))
# Function -> constant of its script -> (value, worth) of each value to try.
CONSTANTS: Mapping[str, Mapping[str, Sequence[tuple[str, float]]]] = {
  'convolve': {'DTYPE': _PRECISIONS},
  'attend': {'DTYPE': _PRECISIONS},
  'mask_of': {'LEAST': [(f'0.{n}', 0.5 if n < 6 else 0.3) for n in range(10)]},
  'contrail_of': {
    'BAND': [(str(n), 0.5 if n in (11, 13, 15) else 0.3) for n in range(8, 17)],
    'COLDER': [(f'{n / 2}', 0.5) for n in range(1, 13)],
  },
}
