"""FLOPs of the matrix products of a compiled program, read from its HLO text.

Two a multiplication and addition, loops by their trips. A product is a `dot`, a
`convolution` (what XLA makes of it on TPUs) or a call of a library: cuBLAS, cuDNN's
attention, and Pallas kernels, which say their cost themselves where they bring a
CostEstimate. What a call costs that is none of these is not known, and named.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping

from jaxagent.compiled import hlo

_TARGET = re.compile(r'custom_call_target="([^"]+)"')
_CUSTOM_FLOPS = re.compile(r'"?flops"?\s*:\s*"?(\d+)')
# Splash attention on TPUs, by the names of its kernels: products of each.
_SPLASH = re.compile(r'splash_m[hq]a_(fwd|dq|dkv)')
_SPLASH_PRODUCTS = {'fwd': 2, 'dq': 3, 'dkv': 4}
# Calls that may multiply matrices in a way that nothing here reads.
_MULTIPLIES = re.compile(
  r'^tpu_custom_call$|triton|matmul|conv|mosaic|fmha', re.I
)


@dataclasses.dataclass(frozen=True)
class Products:
  """flops: of one device. unknown: targets of calls whose cost nothing says.

  A loop whose trips are not known counts once.
  """

  flops: float
  unknown: tuple[str, ...] = ()


_Beside = Mapping[str, hlo.Instruction]  # a computation's instructions by name


def products(text: str) -> Products:
  """Sums the products of `compiled.as_text()`."""
  module = hlo.parse(text)
  unknown: dict[str, None] = {}

  def own(computation: str, part: hlo.Instruction) -> Mapping:
    beside = module.computations[computation]
    if part.opcode == 'dot':
      return {'flops': _dot(part, beside)}
    if part.opcode == 'convolution':
      return {'flops': _convolution(part, beside)}
    if part.opcode == 'custom-call':
      found = _call(part, beside)
      if found is None:
        target = _TARGET.search(part.attributes)
        unknown[target[1] if target else part.opcode] = None
      return {'flops': found or 0.0}
    return {}

  found, _ = hlo.fold(module, own)
  return Products(float(found.get('flops', 0.0)), tuple(unknown))


def _dims(shape: str, which: int = 0) -> tuple[int, ...]:
  arrays = hlo.arrays(shape)
  return arrays[which][1] if arrays else ()


def _operand(
  part: hlo.Instruction, beside: _Beside, number: int
) -> tuple[int, ...]:
  """Dimensions of an operand; () where it is not there."""
  if number >= len(part.operands) or part.operands[number] not in beside:
    return ()
  return _dims(beside[part.operands[number]].shape)


def _dot(part: hlo.Instruction, beside: _Beside) -> float:
  return _contracted(part, beside, r'lhs_contracting_dims=\{([\d,]*)\}')


def _contracted(part: hlo.Instruction, beside: _Beside, pattern: str) -> float:
  """2 x result x what is contracted of the left side."""
  left = _operand(part, beside, 0)
  found = re.search(pattern, part.attributes)
  places = re.findall(r'\d+', found[1]) if found else []
  depth = math.prod(
    left[int(place)] for place in places if int(place) < len(left)
  )
  return 2.0 * math.prod(_dims(part.shape)) * depth


def _convolution(part: hlo.Instruction, beside: _Beside) -> float:
  """2 x result x input features x pairs of window and base that meet.

  dim_labels name each dimension: `bf_io->bf` is a plain product, `0bf_0io->0bf`
  with a window one of batches, most of whose window lies in the padding.
  """
  labels = re.search(r'dim_labels=(\w+)_(\w+)->(\w+)', part.attributes)
  if labels is None:
    return 0.0
  left, right = _operand(part, beside, 0), _operand(part, beside, 1)
  out = _dims(part.shape)
  if not left or not right:
    return 0.0
  of = [
    dict(zip(labels[i], dims)) for i, dims in ((1, left), (2, right), (3, out))
  ]
  pairs = 1.0
  for axis in (c for c in labels[3] if c.isdigit()):
    place = sorted(c for c in labels[3] if c.isdigit()).index(axis)
    window = _window(part.attributes, place)
    pairs *= _meeting(of[0][axis], of[1][axis], of[2][axis], window)
  return 2.0 * of[2]['b'] * of[2]['f'] * of[1]['i'] * pairs


def _window(attributes: str, place: int) -> dict[str, tuple[int, ...]]:
  """stride, pad, lhs_dilate, rhs_dilate of one spatial dimension."""
  found = re.search(r'window=\{([^}]*)\}', attributes)
  out = {
    'stride': (1,),
    'pad': (0, 0),
    'lhs_dilate': (1,),
    'rhs_dilate': (1,),
  }
  for item in (found[1] if found else '').split():
    key, _, value = item.partition('=')
    if key in out:
      part = value.split('x')[place]
      out[key] = tuple(int(n) for n in part.split('_'))
  return out


def _meeting(base: int, window: int, out: int, w: dict) -> int:
  """Pairs (place of the result, of the window) whose base is no padding."""
  (stride,), (low, _) = w['stride'], w['pad']
  (spread,), (apart,) = w['lhs_dilate'], w['rhs_dilate']
  if window == 1 and low == 0 and spread == 1:
    return out
  last = (base - 1) * spread
  return sum(
    1
    for o in range(out)
    for k in range(window)
    if 0 <= (at := o * stride + k * apart - low) <= last and at % spread == 0
  )


def _splash(part: hlo.Instruction, products: int) -> float:
  """Causal products of q and k [.., heads, T, h], its first operands of numbers."""
  found = re.search(r'operand_layout_constraints=\{(.*?\})\}', part.attributes)
  arrays = hlo.arrays(found[1] if found else '')
  wide = [dims for dtype, dims in arrays if 'f' in dtype and len(dims) > 2]
  if len(wide) < 2:
    return 0.0
  return 2.0 * products * math.prod(wide[0]) * wide[1][-2] / 2


def _call(part: hlo.Instruction, beside: _Beside) -> float | None:
  """FLOPs of a library's kernel; 0 where it multiplies nothing, None where unknown."""
  target = _TARGET.search(part.attributes)
  name = target[1] if target else ''
  if name.startswith('__cublas'):
    return _contracted(
      part, beside, r'"lhs_contracting_dimensions":\s*\[([^\]]*)\]'
    )
  if name.startswith('__cudnn$fmha'):
    # Causal: half of the scores. 2 products forward, 5 backward (recomputed).
    q, k = _operand(part, beside, 0), _operand(part, beside, 1)
    each = 2.0 * math.prod(q) * k[1] / 2
    return each * (5 if name.endswith('Backward') else 2)
  if name == 'tpu_custom_call' and (kernel := _SPLASH.search(part.attributes)):
    return _splash(part, _SPLASH_PRODUCTS[kernel[1]])
  if found := _CUSTOM_FLOPS.search(part.attributes):
    return float(found[1])
  return None if _MULTIPLIES.search(name) else 0.0
