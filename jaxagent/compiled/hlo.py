"""Collectives of a compiled program, read from its HLO text, loops by their trips.

`collectives(compiled.as_text())` sums what a device receives as results of
collectives. XLA's own `cost_analysis` counts a loop's body once; here it counts as
often as it runs: by `known_trip_count`, which XLA writes beside a loop, else by the
constant that its condition compares with. The text is that of one device (SPMD), so
shapes are a device's own.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping

KINDS = (
  'all-reduce',
  'all-gather',
  'reduce-scatter',
  'all-to-all',
  'collective-permute',
  'collective-broadcast',
  'ragged-all-to-all',
)

_BITS = {'pred': 8, 'token': 0, 'opaque': 0}
_ARRAY = re.compile(r'\b([a-z]+[0-9]*[a-z0-9]*)\[([0-9,<=]*)\]')
_HEADER = re.compile(r'^(ENTRY\s+)?%?([\w.\-]+)\s+\(.*\{\s*$')
_LINE = re.compile(r'^\s+(ROOT\s+)?%?([\w.\-]+) = (.*)$')
_END = re.compile(r'^\}(, execution_thread="[^"]*")?\s*$')
_CALLED = re.compile(
  r'\b(body|condition|calls|to_apply|true_computation|false_computation|'
  r'branch_computations|called_computations)=(\{[^}]*\}|%?[\w.\-]+)'
)
_TRIPS = re.compile(r'"?known_trip_count"?\s*:\s*\{\s*"?n"?\s*:\s*"?(\d+)')


@dataclasses.dataclass(frozen=True)
class Instruction:
  """One line of HLO: `name = shape opcode(operands), attributes`."""

  name: str
  shape: str
  opcode: str
  operands: tuple[str, ...]
  attributes: str
  literal: str = ''  # what stands between the parentheses of a constant

  def called(self) -> dict[str, tuple[str, ...]]:
    """Computations that it runs, by the attribute that names them."""
    return {
      key: tuple(re.findall(r'[\w.\-]+', value))
      for key, value in _CALLED.findall(self.attributes)
    }


@dataclasses.dataclass(frozen=True)
class Module:
  """Computations by name, each its instructions by name with the root's last."""

  computations: Mapping[str, Mapping[str, Instruction]]
  entry: str


@dataclasses.dataclass(frozen=True)
class Collectives:
  """Result bytes a device and times run, by kind; loops whose trips are unknown.

  The body of a loop of `unknown_loops` is counted once.
  """

  bytes: Mapping[str, int]
  counts: Mapping[str, int]
  unknown_loops: tuple[str, ...] = ()

  @property
  def total(self) -> int:
    """Bytes of all kinds together."""
    return sum(self.bytes.values())


def collectives(text: str, least_bytes: int = 0) -> Collectives:
  """Sums the results of every collective of `compiled.as_text()`.

  An asynchronous pair counts once, by the result of its second half; a tuple by
  the sum of its parts; of a conditional the branch that moves most. What XLA for
  TPUs writes as one fusion of an all-reduce and the cut of it is a reduce-scatter.
  `least_bytes` leaves out smaller results, such as sums of metrics.
  """
  module = parse(text)

  def own(computation: str, instruction: Instruction) -> dict:
    kind = _kind(instruction, module.computations[computation])
    size = array_bytes(instruction.shape) if kind else 0
    if not kind or size < least_bytes:
      return {}
    return {('bytes', kind): size, ('counts', kind): 1}

  found, unknown = fold(module, own, lambda part: _scattered(module, part))
  by: dict[str, dict] = {what: {} for what in ('bytes', 'counts')}
  for (what, kind), value in found.items():
    by[what][kind] = value
  return Collectives(by['bytes'], by['counts'], unknown)


def fold(
  module: Module,
  own: Callable[[str, Instruction], Mapping],
  whole: Callable[[Instruction], Mapping | None] = lambda part: None,
) -> tuple[dict, tuple[str, ...]]:
  """Adds `own(computation, instruction)` over all that the entry runs.

  What a loop runs counts as often as it runs. whole: what an instruction is worth
  with all that it calls, where it says so. Returns the sums by key, and the loops
  whose trips are not known.
  """
  known: dict[str, dict] = {}
  unknown: dict[str, None] = {}

  def of_computation(name: str) -> dict:
    if name not in known:
      known[name] = {}  # HLO has no recursion
      total: collections.Counter = collections.Counter()
      for instruction in module.computations.get(name, {}).values():
        total.update(of_instruction(name, instruction))
      known[name] = dict(total)
    return known[name]

  def of_instruction(computation: str, instruction: Instruction) -> dict:
    if (given := whole(instruction)) is not None:
      return dict(given)
    total = collections.Counter(own(computation, instruction))
    called = instruction.called()
    if instruction.opcode == 'conditional':
      branches = [of_computation(n) for group in called.values() for n in group]
      total.update(max(branches, key=lambda b: sum(b.values()), default={}))
      return total
    times = 1
    if instruction.opcode == 'while':
      trips = trip_count(module, instruction)
      if trips is None:
        unknown[instruction.name] = None
      times = 1 if trips is None else trips
    for group in called.values():
      for name in group:
        for key, value in of_computation(name).items():
          total[key] += times * value
    return total

  return of_computation(module.entry), tuple(unknown)


def trip_count(module: Module, loop: Instruction) -> int | None:
  """Returns how often a `while` runs its body; None if that is not known.

  Without `known_trip_count` it is the constant that the condition compares the
  counter with, which starts at 0 and rises by 1, as loops of scan and map do.
  """
  if found := _TRIPS.search(loop.attributes):
    return int(found[1])
  names = loop.called().get('condition', ())
  parts = [i for n in names for i in _reached(module, n)]
  compares = [i for i in parts if i.opcode == 'compare']
  constants = [
    int(i.literal)
    for i in parts
    if i.opcode == 'constant' and re.fullmatch(r'\d+', i.literal)
  ]
  if len(compares) != 1 or len(constants) != 1:
    return None
  direction = re.search(r'direction=(\w+)', compares[0].attributes)
  more = {'LT': 0, 'NE': 0, 'GT': 0, 'LE': 1, 'GE': 1}
  if direction is None or direction[1] not in more:
    return None
  return constants[0] + more[direction[1]]


def _reached(module: Module, name: str) -> Iterator[Instruction]:
  """Instructions of a computation and of those that it calls."""
  for instruction in module.computations.get(name, {}).values():
    yield instruction
    for group in instruction.called().values():
      for called in group:
        yield from _reached(module, called)


def _kind(part: Instruction, beside: Mapping[str, Instruction]) -> str:
  """The collective whose result this line holds, or ''."""
  opcode = part.opcode.removesuffix('-done')
  if opcode == part.opcode and part.opcode.endswith('-start'):
    return ''  # the other half of the pair has the result alone
  return opcode if opcode in KINDS else ''


def _scattered(module: Module, part: Instruction) -> dict | None:
  """An all-reduce that is cut within its fusion, which TPUs run as one scatter."""
  if part.opcode not in ('fusion', 'fusion-start'):
    return None
  name = next(iter(part.called().get('calls', ())), '')
  inside = list(module.computations.get(name, {}).values())
  kinds = {i.opcode for i in inside}
  if not {'all-reduce', 'dynamic-slice'} <= kinds or 'scatter' not in name:
    return None
  size = array_bytes(inside[-1].shape)
  return {('bytes', 'reduce-scatter'): size, ('counts', 'reduce-scatter'): 1}


def array_bytes(shape: str) -> int:
  """Bytes of a shape as HLO writes it, `f32[8,32]{1,0}`; a tuple's are summed."""
  return sum(
    math.ceil(math.prod(dims) * _bits(dtype) / 8)
    for dtype, dims in arrays(shape)
  )


def arrays(shape: str) -> list[tuple[str, tuple[int, ...]]]:
  """(type, dimensions) of each array in a shape."""
  return [
    (dtype, tuple(int(n.lstrip('<=')) for n in dims.split(',') if n))
    for dtype, dims in _ARRAY.findall(shape)
  ]


def _bits(dtype: str) -> int:
  if dtype in _BITS:
    return _BITS[dtype]
  digits = re.match(r'[a-z]+(\d+)', dtype)
  if digits is None:
    raise ValueError(f'HLO type {dtype!r} has no known width.')
  return int(digits[1])


def parse(text: str) -> Module:
  """Computations and instructions of HLO text.

  Raises ValueError where it has no entry computation.
  """
  lines: dict[str, dict[str, str]] = {}
  entry, now, last = '', None, ''
  for line in text.splitlines():
    if now is None:
      if header := _HEADER.match(line):
        now = lines.setdefault(header[2], {})
        entry = header[2] if header[1] else entry
    elif _END.match(line):
      now = None
    elif found := _LINE.match(line):
      last = found[2]
      now[last] = found[3]
    elif last in now:
      now[last] += line  # attributes of some kernels have lines of their own
  if not entry:
    raise ValueError('this is no HLO text: it has no ENTRY computation.')
  return Module(
    {
      name: {key: _instruction(key, rest) for key, rest in some.items()}
      for name, some in lines.items()
    },
    entry,
  )


def _instruction(name: str, rest: str) -> Instruction:
  shape, rest = _shape(rest)
  opcode, _, rest = rest.partition('(')
  end = _closing(rest, 1)
  inside, attributes = rest[:end], rest[end + 1 :]
  operands = tuple(re.findall(r'%([\w.\-]+)', inside))
  literal = inside.strip() if opcode == 'constant' else ''
  return Instruction(name, shape, opcode.strip(), operands, attributes, literal)


def _shape(rest: str) -> tuple[str, str]:
  """The shape at the start of a line's right side, and what follows it."""
  if not rest.startswith('('):
    shape, _, rest = rest.partition(' ')
    return shape, rest
  end = _closing(rest[1:], 1) + 1
  return rest[: end + 1], rest[end + 1 :].lstrip()


def _closing(text: str, depth: int) -> int:
  """Finds where the parenthesis closes that is open `depth` times; else the end."""
  for found in re.finditer(r'[()]', text):
    depth += 1 if found[0] == '(' else -1
    if not depth:
      return found.start()
  return len(text)
