"""Collectives read from HLO, against values worked out by hand."""

import pytest

from jaxagent.compiled import hlo
from tests.compiled import simulated

# A device's part of float32 [64, 32] over eight is 1,024 bytes.
EXPECTED = {
  'psum': {'all-reduce': (1, 1024)},
  'all_gather': {'all-gather': (1, 4 * 1024)},
  'psum_scatter': {'reduce-scatter': (1, 1024 // 4)},
  'all_to_all': {'all-to-all': (1, 1024)},
  'ppermute': {'collective-permute': (1, 1024)},
  # XLA on CPUs moves bfloat16 as float32.
  'bfloat16': {'all-gather': (1, 4 * 1024)},
  'loop': {'all-reduce': (6, 6 * 1024)},
  'nested': {'all-gather': (15, 15 * 4 * 1024)},
  'until': {'all-reduce': (1, 1024)},
  'branch': {'all-gather': (1, 4 * 1024)},
  'nothing': {},
  # A weight [32, 32] each of 6 layers, gathered for the products (the backward
  # keeps it), its gradient summed.
  'fsdp': {'all-gather': (6, 6 * 4096), 'all-reduce': (6, 6 * 4096)},
}


@pytest.fixture(scope='module')
def found():
  return simulated.run('tests.compiled.small_programs')


@pytest.mark.parametrize('name', EXPECTED)
def test_collectives_of_a_small_program(found, name):
  counts, sizes = found[name]['counts'], found[name]['bytes']
  assert {k: (counts[k], sizes[k]) for k in sizes} == EXPECTED[name]


def test_a_loop_without_a_number_of_trips_is_named(found):
  unknown = {name: f['unknown'] for name, f in found.items() if f['unknown']}
  assert unknown == {'until': 1}


def _module(*lines, more=''):
  body = '\n'.join(f'  {line}' for line in lines)
  return (
    f'HloModule m\n\n{more}\nENTRY %main (p: f32[8]) -> f32[8] {{\n{body}\n}}\n'
  )


@pytest.mark.parametrize(
  ('lines', 'expected'),
  [
    (
      (
        '%ag = (bf16[16]{0}, bf16[128]{0}) all-gather-start(%p), dimensions={0}',
        'ROOT %d = bf16[128]{0} all-gather-done(%ag)',
      ),
      {'all-gather': 256},
    ),
    (
      (
        '%cp = (f32[8]{0}, f32[8]{0}, u32[], u32[]) collective-permute-start(%p)',
        'ROOT %d = f32[8]{0} collective-permute-done(%cp)',
      ),
      {'collective-permute': 32},
    ),
    (
      (
        '%rs = ((f32[64]{0}), f32[8]{0}) reduce-scatter-start(%p), dimensions={0}',
        'ROOT %d = f32[8]{0} reduce-scatter-done(%rs)',
      ),
      {'reduce-scatter': 32},
    ),
    (
      (
        'ROOT %ar = (f32[4]{0:T(128)}, /*index=1*/bf16[2,3]{1,0:T(8,128)(2,1)S(1)}) '
        'all-reduce(%p, %q), to_apply=%add',
      ),
      {'all-reduce': 16 + 12},
    ),
    (('ROOT %s = s4[7]{0} all-gather(%p)',), {'all-gather': 4}),
    (('ROOT %t = f32[8]{0} fusion(%p), calls=%none',), {}),
  ],
)
def test_forms_of_other_compilers(lines, expected):
  assert hlo.collectives(_module(*lines)).bytes == expected


def test_a_wrapped_asynchronous_collective_counts_once():
  wrapped = (
    '%wrapped (a: f32[64]) -> f32[8] {\n'
    '  %a = f32[64]{0} parameter(0)\n'
    '  ROOT %r = f32[8]{0} reduce-scatter(%a), dimensions={0}\n'
    '}\n'
  )
  text = _module(
    '%s = ((f32[64]{0}), f32[8]{0}, s32[]) async-start(%p), calls=%wrapped',
    'ROOT %d = f32[8]{0} async-done(%s)',
    more=wrapped,
  )
  assert hlo.collectives(text).bytes == {'reduce-scatter': 32}


def test_an_all_reduce_that_its_fusion_cuts_is_a_reduce_scatter():
  fused = (
    '%all-reduce-scatter.1 (a: bf16[64]) -> bf16[8] {\n'
    '  %a = bf16[64]{0} parameter(0)\n'
    '  %r = bf16[64]{0} all-reduce(%a), to_apply=%add\n'
    '  ROOT %c = bf16[8]{0} dynamic-slice(%r, %i), dynamic_slice_sizes={8}\n'
    '}\n'
  )
  text = _module(
    'ROOT %f = bf16[8]{0} fusion(%p), kind=kCustom, calls=%all-reduce-scatter.1',
    more=fused,
  )
  assert hlo.collectives(text).bytes == {'reduce-scatter': 16}


LOOP = """
%body (s: (s32[], f32[8])) -> (s32[], f32[8]) {{
  %s = (s32[], f32[8]{{0}}) parameter(0)
  %x = f32[8]{{0}} get-tuple-element(%s), index=1
  %r = f32[8]{{0}} all-reduce(%x), to_apply=%add
  ROOT %t = (s32[], f32[8]{{0}}) tuple(%n, %r)
}}

%cond (s.1: (s32[], f32[8])) -> pred[] {{
  %s.1 = (s32[], f32[8]{{0}}) parameter(0)
  %n.1 = s32[] get-tuple-element(%s.1), index=0
  %c = s32[] constant(6)
  ROOT %less = pred[] compare({operands}), direction={direction}
}}
"""


@pytest.mark.parametrize(
  ('operands', 'direction', 'config', 'trips'),
  [
    ('%n.1, %c', 'LT', '', 6),
    ('%n.1, %c', 'LE', '', 7),
    ('%c, %n.1', 'GT', '', 6),
    ('%n.1, %c', 'LT', ', backend_config={"known_trip_count":{"n":"4"}}', 4),
  ],
)
def test_trips_of_a_loop(operands, direction, config, trips):
  text = _module(
    'ROOT %w = (s32[], f32[8]{0}) while(%p), condition=%cond, body=%body'
    + config,
    more=LOOP.format(operands=operands, direction=direction),
  )
  found = hlo.collectives(text)
  assert found.counts == {'all-reduce': trips} and not found.unknown_loops


def test_attributes_of_several_lines_end_no_computation():
  text = _module(
    '%k = f32[4]{0} custom-call(%p), frontend_attributes={kernel_metadata={',
    '',
    'ROOT %ar = f32[2]{0} all-reduce(%k), to_apply=%add',
  ).replace('{\n  \n', '{\n"x":"y"\n}}, backend_config={"flops":"7"}\n')
  assert '\n}}, backend_config' in text
  assert hlo.collectives(text).bytes == {'all-reduce': 8}
  (entry,) = hlo.parse(text).computations.values()
  assert entry['k'].attributes.endswith('}}, backend_config={"flops":"7"}')


def test_small_results_can_be_left_out():
  text = _module('ROOT %ar = f32[] all-reduce(%p), to_apply=%add')
  assert hlo.collectives(text).total == 4
  assert hlo.collectives(text, least_bytes=5).total == 0


def test_what_is_no_hlo_is_refused():
  with pytest.raises(ValueError, match='no ENTRY computation'):
    hlo.collectives('module @jit_f {}')
