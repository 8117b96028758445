"""Ways to order the cells of a notebook and to choose a part of a text.

`ordered` takes cells (id, 'code' or 'markdown', text) and returns ids; `part_of` takes a
message and its sentiment, `answer_of` a text and a question: they return text.
"""

from jaxagent.stand_ins.ways.way import Way

ORDERED = (
  Way(
    0.3,
    'the markdown cells first',
    """
def ordered(cells):
  return [name for name, kind, _ in sorted(cells, key=lambda c: c[1] == 'code')]
""",
  ),
  Way(
    0.5,
    'the markdown cells spread evenly',
    """
def ordered(cells):
  keys = []
  for kind in ('markdown', 'code'):
    own = [c for c in cells if c[1] == kind]
    keys += [(k / len(own), kind == 'code', c[0]) for k, c in enumerate(own)]
  return [name for _, _, name in sorted(keys)]
""",
  ),
  Way(
    0.5,
    'the {n} longest markdown cells first',
    """
def ordered(cells):
  texts = sorted((c for c in cells if c[1] != 'code'), key=lambda c: -len(c[2]))
  first = [c[0] for c in texts[:{n}]]
  return first + [c[0] for c in cells if c[0] not in first]
""",
    (1, 15),
  ),
  Way(
    0.5,
    'the {n} shortest markdown cells first',
    """
def ordered(cells):
  texts = sorted((c for c in cells if c[1] != 'code'), key=lambda c: len(c[2]))
  first = [c[0] for c in texts[:{n}]]
  return first + [c[0] for c in cells if c[0] not in first]
""",
    (1, 15),
  ),
  Way(
    0.8,
    'words of {n} letters or more that a markdown cell shares with the code below it',
    """
def ordered(cells):
  import re

  def words(text):
    return {w for w in re.findall(r'\\w+', text.lower()) if len(w) >= {n}}

  code = [c for c in cells if c[1] == 'code']
  keys = [(k, 1, c[0]) for k, c in enumerate(code)]
  for name, kind, text in cells:
    if kind != 'code':
      shared = [len(words(text) & words(c[2])) for c in code]
      keys.append((shared.index(max(shared)), 0, name))
  return [name for _, _, name in sorted(keys)]
""",
    (1, 24),
  ),
  Way(
    0.7,
    'words of {n} letters or more that a markdown cell shares with the code above it',
    """
def ordered(cells):
  import re

  def words(text):
    return {w for w in re.findall(r'\\w+', text.lower()) if len(w) >= {n}}

  code = [c for c in cells if c[1] == 'code']
  keys = [(k, 0, c[0]) for k, c in enumerate(code)]
  for name, kind, text in cells:
    if kind != 'code':
      shared = [len(words(text) & words(c[2])) for c in code]
      keys.append((shared.index(max(shared)), 1, name))
  return [name for _, _, name in sorted(keys)]
""",
    (1, 24),
  ),
  Way(
    0.7,
    'places learned from the training notebooks, ridge of strength {n}',
    """
def ordered(cells):
  from sklearn.feature_extraction.text import TfidfVectorizer
  from sklearn.linear_model import Ridge
  from sklearn.pipeline import make_pipeline

  if not hasattr(ordered, 'model'):
    texts, places = [], []
    for name, order in pd.read_csv('data/train_orders.csv').to_numpy():
      with open(f'data/train/{name}.json', encoding='utf-8') as f:
        source = json.load(f)['source']
      ids = order.split()
      texts += [source[i] for i in ids]
      places += [k / len(ids) for k in range(len(ids))]
    ordered.model = make_pipeline(
      TfidfVectorizer(min_df=3), Ridge({n}, solver='lsqr', tol=1e-9)
    )
    ordered.model.fit(texts, places)
  guesses = ordered.model.predict([c[2] for c in cells]).round(6)
  code = sorted(g for g, c in zip(guesses, cells) if c[1] == 'code')
  code = iter(code)  # the code stays in its order
  keys = [next(code) if c[1] == 'code' else g for g, c in zip(guesses, cells)]
  return [c[0] for _, c in sorted(zip(keys, cells))]
""",
    (1, 20),
  ),
)
PART_OF = (
  Way(
    0.4,
    'the first {n} words',
    """
def part_of(text, sentiment):
  if sentiment == 'neutral':
    return text.strip()
  return ' '.join(text.split()[:{n}])
""",
    (1, 24),
  ),
  Way(
    0.5,
    'the last {n} words',
    """
def part_of(text, sentiment):
  if sentiment == 'neutral':
    return text.strip()
  return ' '.join(text.split()[-{n}:])
""",
    (1, 24),
  ),
  Way(
    0.4,
    'what follows word {n}',
    """
def part_of(text, sentiment):
  if sentiment == 'neutral':
    return text.strip()
  return ' '.join(text.split()[{n}:]) or text.strip()
""",
    (1, 12),
  ),
  Way(
    0.5,
    'the longest sentence',
    """
def part_of(text, sentiment):
  import re

  if sentiment == 'neutral':
    return text.strip()
  return max(re.split(r'(?<=[.!?]) ', text.strip()), key=len)
""",
  ),
  Way(
    0.5,
    'the shortest sentence',
    """
def part_of(text, sentiment):
  import re

  if sentiment == 'neutral':
    return text.strip()
  return min(re.split(r'(?<=[.!?]) ', text.strip()), key=len)
""",
  ),
  Way(
    0.8,
    'the run of at most {n} words that training messages chose most',
    """
def part_of(text, sentiment):
  import collections
  import math

  if not hasattr(part_of, 'odds'):
    good, every = collections.Counter(), collections.Counter()
    for row in pd.read_csv('data/train.csv', keep_default_na=False).itertuples():
      for word in row.text.split():
        every[row.sentiment, word] += 1
        good[row.sentiment, word] += word in row.selected_text.split()
    part_of.odds = {
      key: math.log((good[key] + 0.5) / (every[key] - good[key] + 1.5)) for key in every
    }
  words = text.split()
  if sentiment == 'neutral' or not words:
    return text.strip()
  odds = [part_of.odds.get((sentiment, word), -1.0) for word in words]
  runs = [
    (round(sum(odds[i:j]), 6), -i, -j)
    for i in range(len(words))
    for j in range(i + 1, min(i + {n}, len(words)) + 1)
  ]
  _, i, j = max(runs)
  return ' '.join(words[-i : -j])
""",
    (1, 30),
  ),
  Way(
    0.6,
    'the {n} words around the one that training messages chose most',
    """
def part_of(text, sentiment):
  import collections

  if not hasattr(part_of, 'share'):
    good, every = collections.Counter(), collections.Counter()
    for row in pd.read_csv('data/train.csv', keep_default_na=False).itertuples():
      for word in row.text.split():
        every[row.sentiment, word] += 1
        good[row.sentiment, word] += word in row.selected_text.split()
    part_of.share = {key: (good[key] + 1) / (every[key] + 4) for key in every}
  words = text.split()
  if sentiment == 'neutral' or not words:
    return text.strip()
  share = [part_of.share.get((sentiment, word), 0.25) for word in words]
  at = max(share.index(max(share)) - {n} // 2, 0)
  return ' '.join(words[at : at + {n}])
""",
    (1, 24),
  ),
)
ANSWER_OF = (
  Way(
    0.4,
    'the first {n} words of the sentence with most words of the question',
    """
def answer_of(context, question):
  asked = set(question.rstrip('?').split())
  sentences = [s.strip() for s in re.split('[।.]', context) if s.strip()]
  found = max(sentences, key=lambda s: len(asked & set(s.split())))
  return ' '.join(found.split()[:{n}])
""",
    (1, 20),
  ),
  Way(
    0.5,
    'the last {n} words of the sentence with most words of the question',
    """
def answer_of(context, question):
  asked = set(question.rstrip('?').split())
  sentences = [s.strip() for s in re.split('[।.]', context) if s.strip()]
  found = max(sentences, key=lambda s: len(asked & set(s.split())))
  return ' '.join(found.split()[-{n}:])
""",
    (1, 20),
  ),
  Way(
    0.7,
    'what the sentence with most words of the question has beyond it, {n} words',
    """
def answer_of(context, question):
  asked = set(question.rstrip('?').split())
  sentences = [s.strip() for s in re.split('[।.]', context) if s.strip()]
  found = max(sentences, key=lambda s: len(asked & set(s.split())))
  new = [word for word in found.split() if word not in asked]
  return ' '.join(new[:{n}]) or found
""",
    (1, 20),
  ),
  Way(
    0.8,
    'the numbers of the sentence with most words of the question, else {n} new words',
    """
def answer_of(context, question):
  asked = set(question.rstrip('?').split())
  sentences = [s.strip() for s in re.split('[।.]', context) if s.strip()]
  found = max(sentences, key=lambda s: len(asked & set(s.split())))
  new = [word for word in found.split() if word not in asked]
  numbers = [word for word in new if word.isdigit()]
  return ' '.join(numbers or new[:{n}]) or found
""",
    (1, 20),
  ),
  Way(
    0.6,
    'the {n} words after the last one of the question',
    """
def answer_of(context, question):
  asked = set(question.rstrip('?').split())
  sentences = [s.strip() for s in re.split('[।.]', context) if s.strip()]
  found = max(sentences, key=lambda s: len(asked & set(s.split()))).split()
  last = max((k for k, word in enumerate(found) if word in asked), default=-1)
  return ' '.join(found[last + 1 : last + 1 + {n}]) or ' '.join(found)
""",
    (1, 20),
  ),
  Way(
    0.7,
    'neighbours of training answers, at most {n} words',
    """
def answer_of(context, question):
  import collections

  if not hasattr(answer_of, 'near'):
    answer_of.near = collections.Counter()
    for row in pd.read_csv('data/train.csv').itertuples():
      words = f'< {row.context} >'.split()
      answer = str(row.answer_text).split()
      for k in range(1, len(words) - len(answer)):
        if words[k : k + len(answer)] == answer:
          answer_of.near[words[k - 1], 0] += 1
          answer_of.near[words[k + len(answer)], 1] += 1
  near, asked = answer_of.near, set(question.rstrip('?').split())
  sentences = [s.strip() for s in re.split('[।.]', context) if s.strip()]
  found = max(sentences, key=lambda s: len(asked & set(s.split())))
  words = ['<', *found.split(), '>']
  runs = [
    (near[words[i - 1], 0] + near[words[j], 1], -i, -j)
    for i in range(1, len(words) - 1)
    for j in range(i + 1, min(i + {n}, len(words) - 1) + 1)
    if not asked & set(words[i:j])
  ]
  _, i, j = max(runs, default=(0, -1, 1 - len(words)))
  return ' '.join(words[-i : -j])
""",
    (1, 20),
  ),
)
