"""Which program to improve upon? Searches on the table of executed programs.

  python -m benchmarks.search_rules [--searches 300] [--json]

A search writes 100 programs of `benchmarks.programs` (`digits`): five from scratch, as the
scripted author draws them, then half from scratch and half with one choice of a parent drawn
again; 30 % fail, as slips do, and are no parents. Rules choose the parent: `uniform` and
`ranked` are `SolutionSource` with `solution.parents` itself; `roulette` draws in proportion
to the score, `best` takes the best one, as AIDE's search does, and `none` only writes from
scratch. Shown is the share of searches that have found the table's best validation score
after 50 and 100 programs, with its 95 % interval (Wilson), and the private score of what
validation chooses, on average.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats as sps

from benchmarks import machine, programs
from jaxagent.data.solutions import SolutionSource
from jaxagent.envs.solution import Solution

NAME = 'search_rules'
TASK = 'digits'
PROGRAMS, DRAFTS, SLIP, IMPROVE = 100, 5, 0.3, 0.5
SHOWN = (50, 100)
Options = tuple[tuple[str, str], ...]
# (indices of possible parents, their scores, rng) -> a parent
Rule = Callable[[Sequence[int], np.ndarray, np.random.Generator], int]


class Space:
  """The programs of a task, and how one is written or changed."""

  def __init__(self, task: Mapping[str, Any]):
    rows = task['programs']
    self.start = task['start']
    self.options: list[Options] = [
      tuple((choice, option) for choice, option in row['options'])
      for row in rows
    ]
    self.index = {frozenset(o): i for i, o in enumerate(self.options)}
    sign = 1.0 if task['higher_is_better'] else -1.0
    score = lambda key: np.array(  # noqa: E731
      [sign * row.get(key, np.nan) for row in rows]
    )
    self.valid, self.private = score('valid'), score('private')
    self.best = float(np.nanmax(self.valid))

  def _pick(self, choice: str, rng: np.random.Generator) -> str:
    chances = self.start[choice]
    names = list(chances)
    p = np.array(list(chances.values()))
    return names[int(rng.choice(len(names), p=p / p.sum()))]

  def draft(
    self, rng: np.random.Generator, given: Mapping[str, str] = {}
  ) -> int:
    """Writes a program from scratch; `given`: choices that are made already."""
    made: dict[str, str] = {}
    for choice in self.start:
      of_model = choice not in ('before', 'model')
      if not of_model or choice.startswith(f'{made["model"]} '):
        drawn = choice not in given  # '' is an option, too
        made[choice] = self._pick(choice, rng) if drawn else given[choice]
    return self.index[frozenset(made.items())]

  def improved(self, parent: int, rng: np.random.Generator) -> int:
    """Draws one choice of a program again, and what follows of it."""
    own = dict(self.options[parent])
    own.pop(list(own)[int(rng.integers(len(own)))])
    return self.draft(rng, own)


def _uniform(kept: Sequence[int], scores: np.ndarray, rng) -> int:
  return kept[int(rng.integers(len(kept)))]


def _roulette(kept: Sequence[int], scores: np.ndarray, rng) -> int:
  p = scores - min(0.0, scores.min())
  total = p.sum()
  if not total:
    return _uniform(kept, scores, rng)
  return kept[int(rng.choice(len(kept), p=p / total))]


def _best(kept: Sequence[int], scores: np.ndarray, rng) -> int:
  return kept[int(scores.argmax())]


RULES: Mapping[str, Rule | None] = {
  'uniform': None,
  'ranked': None,
  'roulette': _roulette,
  'best': _best,
  'none': None,
}


def search(space: Space, rule: str, seed: int) -> list[int]:
  """Returns the programs that were written, -1 for one that failed."""
  rng = np.random.default_rng([seed, 17])
  source = SolutionSource(
    (TASK,),
    improve=1.0,
    parents=rule if rule in ('uniform', 'ranked') else 'uniform',
    seed=seed,
  )
  written: list[int] = []
  kept: list[int] = []
  for number in range(PROGRAMS):
    drafts = number < DRAFTS or rng.random() >= IMPROVE or not kept
    if drafts or rule == 'none':
      program = space.draft(rng)
    else:
      program = space.improved(_parent(space, rule, source, kept, rng), rng)
    if rng.random() < SLIP or not np.isfinite(space.valid[program]):
      written.append(-1)
      continue
    written.append(program)
    if program not in kept:
      kept.append(program)
      merit = float(space.valid[program])
      source.keep(TASK, Solution('', str(program)), '', merit)
  return written


def _parent(
  space: Space,
  rule: str,
  source: SolutionSource,
  kept: Sequence[int],
  rng: np.random.Generator,
) -> int:
  choose = RULES[rule]
  if choose is not None:
    return choose(kept, space.valid[list(kept)], rng)
  previous = source.draw().prompts[0].payload.previous
  assert previous is not None  # improve=1 and something is kept
  return int(previous.solution.code)


def measure(space: Space, rule: str, searches: int) -> dict[str, Any]:
  """{found: {programs: (share, low, high)}, private: its mean at the end}"""
  hits = {n: 0 for n in SHOWN}
  private = []
  for seed in range(searches):
    written = search(space, rule, seed)
    scores = np.array(
      [-np.inf if i < 0 else space.valid[i] for i in written], float
    )
    for n in SHOWN:
      hits[n] += bool(scores[:n].max() >= space.best)
    private.append(space.private[written[int(scores.argmax())]])
  found = {}
  for n in SHOWN:
    low, high = sps.binomtest(hits[n], searches).proportion_ci(method='wilson')
    found[str(n)] = [hits[n] / searches, float(low), float(high)]
  return {'found': found, 'private': float(np.mean(private))}


def table(result: dict[str, Any]) -> str:
  """Markdown."""
  lines = [
    '| parent | best found after 50 programs | after 100 | private of the chosen |',
    '|---|---|---|---|',
  ]
  for rule, row in result['rules'].items():
    cells = [
      f'{share:.2f} ({low:.2f} to {high:.2f})'
      for share, low, high in row['found'].values()
    ]
    lines.append(f'| {rule} | {" | ".join(cells)} | {row["private"]:.4f} |')
  return '\n'.join(lines)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--searches', type=int, default=300)
  parser.add_argument('--json', action='store_true', help='save the result')
  args = parser.parse_args()
  known = json.loads((machine.RESULTS / f'{programs.NAME}.json').read_text())
  space = Space(known['tasks'][TASK])
  result: dict[str, Any] = {'searches': args.searches, 'rules': {}}
  for rule in RULES:
    result['rules'][rule] = measure(space, rule, args.searches)
    print(rule, result['rules'][rule], flush=True)
  print(table(result))
  if args.json:
    print(machine.save(NAME, result))


if __name__ == '__main__':
  main()
