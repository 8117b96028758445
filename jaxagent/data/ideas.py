"""Ideas for the first steps of a trajectory (paper 000, sections 4.1, B.2).

A pool of at least 100 ideas a task; the 10 with the largest mean embedding
distance to the others; 1 to 3 of these drawn into each trajectory's problem
statement. Embeddings are TF-IDF offline, or any `embed` function.
"""

from __future__ import annotations

import collections
import math
import random
import re
from collections.abc import Callable, Sequence

import numpy as np

from jaxagent import types
from jaxagent.envs import parser
from jaxagent.envs.interfaces import TextModelError
from jaxagent.envs.model_line import step_names
from jaxagent.llm.base import TextModel, complete
from jaxagent.stand_ins import moves

MIN_POOL = 100
MAX_TOKENS = 4096  # of a model's answer with a batch of them
MAX_IDEA_CHARS = 1000  # a longer line is no advice for a first step

# Paper 000 table 7.
IDEA_PROMPT = (
  'You are given a machine learning task and an initial script on the task. '
  'The machine learning task description is: {task_description} The initial '
  'script is: {initial_script} You should give {number_to_generate} advices '
  'that may potentially improve the metric performance(e.g. accuracy) of the '
  'script on this machine learning task. You advices in you answer should '
  'strictly following the following format(one advice should be in a line), '
  'note that [advice] flag should only be mentioned only once in your answer: '
  '[advice] YOUR ADVICE HERE'
)
# Headings, fences, and what introduces a list, in bold or not.
_AROUND = re.compile(r'\s*(?:#+\s|```|~~~)|.*[:\uff1a][\s*_]*$')


def idea_pool(task: types.TaskSpec) -> list[str]:
  """Returns 100 or more different scripted ideas for a task (offline).

  Ideas that the scripted editor can never carry out, or that name a step the
  starter script does not have, are left out: being unlike all others, they
  would fill the diverse ten and fail every first step.
  """
  stock = moves.moves_for(task.kind, task.modality)
  starter = task.root / 'env' / 'train.py'
  present = set(step_names(starter.read_text()) if starter.is_file() else ())
  pool = list(
    dict.fromkeys(
      m.say()
      for m in stock
      if m.family != 'impossible' and (not m.needs or present & set(m.needs))
    )
  )
  if len(pool) < MIN_POOL:
    raise ValueError(
      f'task {task.name}: the scripted expert has {len(pool)} ideas for {task.kind} on '
      f'{task.modality} data, of {MIN_POOL} that it needs; let a model act there '
      '(config.expert.kind=openai, config.editor.kind=openai).'
    )
  return pool


def parse_advice(text: str) -> list[str]:
  """Ideas from an answer to IDEA_PROMPT, one a line, bullets stripped.

  What stands around them is left out: unlike all ideas, it would be chosen as
  the most diverse.
  """
  text = text.split('[advice]', 1)[-1]
  lines = (
    re.sub(r'^\s*(?:\[advice\]|[-*]|\d+[.)])\s*', '', line).strip()
    for line in text.splitlines()
    if not _AROUND.match(line)
  )
  return list(dict.fromkeys(line for line in lines if _is_idea(line)))


def _is_idea(line: str) -> bool:
  return (
    len(line) <= MAX_IDEA_CHARS
    and parser.is_text(line)
    and any(c.isalpha() for c in line)
  )


def model_idea_pool(
  model: TextModel,
  task: types.TaskSpec,
  script: str,
  *,
  n: int = MIN_POOL,
  batch: int = 25,
  max_calls: int = 12,
  max_tokens: int = MAX_TOKENS,
) -> list[str]:
  """Asks a text model for n or more different ideas (table 7's prompt).

  Raises TextModelError where the model does not come up with n.
  """
  ideas: dict[str, None] = {}
  for call in range(max_calls):
    prompt = IDEA_PROMPT.format(
      task_description=task.research_problem,
      initial_script=script,
      number_to_generate=batch,
    )
    answer = complete(
      model,
      [{'role': 'user', 'content': prompt}],
      max_tokens=max_tokens,
      temperature=1.0,
      seed=call,
    )
    ideas.update(dict.fromkeys(parse_advice(answer)))
    if len(ideas) >= n:
      return list(ideas)
  raise TextModelError(
    f'{model.name} gave {len(ideas)} ideas in {max_calls} calls, not {n}.'
  )


def tfidf(texts: Sequence[str]) -> np.ndarray:
  """Rows of unit length, float64 [n, vocabulary]; words and word pairs."""
  bags = []
  for text in texts:
    words = re.findall(r'[A-Za-z]+|\d+(?:\.\d+)?', text.lower())
    bags.append(
      collections.Counter(words + [' '.join(p) for p in zip(words, words[1:])])
    )
  vocabulary = {w: i for i, w in enumerate(sorted(set().union(*bags)))}
  matrix = np.zeros((len(texts), max(1, len(vocabulary))))
  for row, bag in enumerate(bags):
    for word, count in bag.items():
      matrix[row, vocabulary[word]] = count
  seen = (matrix > 0).sum(axis=0)
  matrix *= np.log((1 + len(texts)) / (1 + seen)) + 1
  norm = np.linalg.norm(matrix, axis=1, keepdims=True)
  return matrix / np.where(norm > 0, norm, 1)


def select_diverse(
  ideas: Sequence[str],
  k: int = 10,
  *,
  embed: Callable[[Sequence[str]], np.ndarray] = tfidf,
) -> list[str]:
  """The k ideas with the largest mean cosine distance to the others.

  Ties go to the earlier idea, so the choice is deterministic.
  """
  if not 1 <= k <= len(ideas):
    raise ValueError(f'k={k} must be between 1 and {len(ideas)} (the ideas).')
  vectors = np.asarray(embed(ideas), dtype=np.float64)
  norm = np.linalg.norm(vectors, axis=1, keepdims=True)
  vectors = vectors / np.where(norm > 0, norm, 1)
  distance = 1.0 - vectors @ vectors.T
  np.fill_diagonal(distance, 0.0)
  mean = distance.sum(axis=1) / max(1, len(ideas) - 1)
  order = sorted(range(len(ideas)), key=lambda i: (-round(mean[i], 12), i))
  return [ideas[i] for i in order[:k]]


def draw(
  ideas: Sequence[str], rng: random.Random, low: int = 1, high: int = 3
) -> tuple[str, ...]:
  """1 to 3 different ideas for one trajectory."""
  count = min(len(ideas), rng.randint(low, high))
  return tuple(rng.sample(list(ideas), count))


def entropy(counts: Sequence[int]) -> float:
  """Shannon entropy in nats of a histogram (mode collapse shows as ~0)."""
  total = sum(counts)
  return (
    -sum(c / total * math.log(c / total) for c in counts if c) if total else 0.0
  )
