"""FLOPs of products read from HLO, in the forms of each compiler, by hand."""

import pytest

from jaxagent.compiled import products

Q, K = 'bf16[2,128,4,64]{3,2,1,0}', 'bf16[2,128,2,64]{3,2,1,0}'
# Causal: 2 x half of [128, 128] x 64 for 2 x 4 heads.
ATTENDED = 2 * 2 * 4 * 128 * 128 * 64 / 2
SPLASH = (
  'custom-call(%i, %q, %k), custom_call_target="tpu_custom_call", '
  'operand_layout_constraints={s8[1,2,2]{2,1,0}, bf16[2,4,128,64]{3,2,1,0}, '
  'bf16[2,2,128,64]{3,2,1,0}}, metadata={op_name="splash_mha_%s_segmented"}'
)


@pytest.mark.parametrize(
  ('operands', 'line', 'flops'),
  [
    (
      ('f32[8,32]{1,0}', 'f32[32,16]{1,0}'),
      'f32[8,16]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}',
      2 * 8 * 16 * 32,
    ),
    (
      ('f32[3,8,32]{2,1,0}', 'f32[3,16,32]{2,1,0}'),
      'f32[3,8,16]{2,1,0} dot(%a, %b), lhs_batch_dims={0}, lhs_contracting_dims={2}, '
      'rhs_batch_dims={0}, rhs_contracting_dims={2}',
      2 * 3 * 8 * 16 * 32,
    ),
    (
      ('bf16[8,32]{1,0}', 'bf16[32,16]{1,0}'),
      'bf16[8,16]{1,0} convolution(%a, %b), dim_labels=bf_io->bf',
      2 * 8 * 16 * 32,
    ),
    (
      ('bf16[32,8]{1,0}', 'bf16[32,16]{1,0}'),
      'bf16[8,16]{1,0} convolution(%a, %b), dim_labels=fb_io->bf',
      2 * 8 * 16 * 32,
    ),
    # A batch of 3 as a spatial axis: each place meets the window once.
    (
      ('bf16[3,8,32]{2,1,0}', 'bf16[3,32,16]{2,1,0}'),
      'bf16[3,8,16]{2,1,0} convolution(%a, %b), window={size=3 stride=2 pad=0_0 '
      'lhs_dilate=3}, dim_labels=0bf_0io->0bf',
      2 * 3 * 8 * 16 * 32,
    ),
    (
      ('bf16[8,32]{1,0}', 'bf16[32,16]{1,0}'),
      '(bf16[8,16]{1,0}, s8[64]{0}) custom-call(%a, %b), '
      'custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":'
      '{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}}',
      2 * 8 * 16 * 32,
    ),
    (
      (Q, K),
      '(bf16[2,4,128,64]{3,2,1,0}, u8[0]{0}) custom-call(%a, %b), '
      'custom_call_target="__cudnn$fmhaScaleBiasSoftmax"',
      2 * ATTENDED,
    ),
    (
      (Q, K),
      '(bf16[2,4,128,64]{3,2,1,0}, u8[0]{0}) custom-call(%a, %b), '
      'custom_call_target="__cudnn$fmhaScaleBiasSoftmaxBackward"',
      5 * ATTENDED,
    ),
    (('s8[1]{0}',), f'f32[8]{{0}} {SPLASH.replace("%s", "fwd")}', 2 * ATTENDED),
    (('s8[1]{0}',), f'f32[8]{{0}} {SPLASH.replace("%s", "dq")}', 3 * ATTENDED),
    (('s8[1]{0}',), f'f32[8]{{0}} {SPLASH.replace("%s", "dkv")}', 4 * ATTENDED),
    # One row a device has no axis of its own.
    (
      ('s8[1]{0}',),
      f'f32[8]{{0}} {SPLASH.replace("%s", "fwd").replace("[2,4,", "[4,")}',
      ATTENDED,
    ),
    (
      ('f32[8]{0}',),
      'f32[8]{0} custom-call(%a), custom_call_target="tpu_custom_call", '
      'backend_config={"cost_estimate":{"flops":"77"}}',
      77,
    ),
    (('f32[8]{0}',), 'f32[8]{0} custom-call(%a), custom_call_target="TopK"', 0),
  ],
)
def test_flops_of_a_product(operands, line, flops):
  found = products.products(_text(operands, line))
  assert found.flops == flops and not found.unknown


def _text(operands, line):
  names = 'abc'
  given = '\n'.join(
    f'  %{n} = {shape} parameter({i})'
    for i, (n, shape) in enumerate(zip(names, operands))
  )
  return (
    f'ENTRY %main (a: f32[1]) -> f32[1] {{\n{given}\n  ROOT %r = {line}\n}}\n'
  )


def test_a_kernel_that_says_nothing_is_named():
  line = 'f32[8]{0} custom-call(%a), custom_call_target="tpu_custom_call"'
  assert products.products(_text(('f32[8]{0}',), line)).unknown == (
    'tpu_custom_call',
  )
