"""Options of the learner, checked when made."""

from __future__ import annotations

import dataclasses

from jaxagent.data import batching
from jaxagent.models.config import DTYPES
from jaxagent.options import Section, must, option, relation

PRODUCT_DTYPES = ('float32', 'bfloat16', 'auto')
SCHEDULES = ('cosine', 'constant')
# What may lie in pinned host memory while it is not used.
OFFLOADED = ('reference', 'value', 'policy_optimizer', 'value_optimizer')

CENTRED = ('gae', 'reinforce_pp')  # estimators whose batch is whitened
# Those of `algorithms.best_of`, on the host; the first two read `best_of`.
OF_THE_BEST = ('best_of', 'max_rl')
ON_THE_HOST = (*OF_THE_BEST, 'entropic')
GROUPED = (
  'grpo',
  'dr_grpo',
  'rloo',
  *ON_THE_HOST,
)  # that compare equal prompts
DISCOUNTED = ('gae', 'reinforce_pp')  # those that read gamma
# Where a KL estimate may stand -> those whose expected gradient is a KL's
# (`jaxagent.algorithms.kl`).
USEFUL_KL = {'loss': ('k2', 'k3'), 'reward': ('k1',)}


@dataclasses.dataclass(frozen=True)
class LearnerOptions(Section):
  """Options of an update, part of section `rl`."""

  policy_lr: float = option(3e-4, above=0, help='AdamW rate of the policy.')
  value_lr: float = option(3e-3, above=0, help='AdamW rate of the critic.')
  warmup_steps: int = option(
    0,
    unit='optimizer steps',
    least=0,
    help='Linear warm-up of both rates; 0: none.',
  )
  schedule: str = option(
    'constant',
    choices=SCHEDULES,
    help='Schedule of both rates; cosine: down to a tenth at the end.',
    advanced=True,
  )
  weight_decay: float = option(
    0.01, least=0, help='Weight decay of AdamW; 0: none.', advanced=True
  )
  ppo_epochs: int = option(2, help='Passes over each batch.')
  minibatches: int = option(1, help='Optimizer steps of a pass.', advanced=True)
  estimator: str = option(
    'gae',
    choices=(*CENTRED, *GROUPED),
    help='Estimator of advantages; gae alone has a critic. best_of: exact for the best '
    'of best_of samples; max_rl and entropic are arms to compare with it.',
  )
  best_of: int = option(
    8,
    least=2,
    help='K of the estimators best_of and max_rl, below the size of a group, and of gae '
    'with window.',
    advanced=True,
  )
  ties: float = option(
    0.0,
    least=0,
    unit='of the reward',
    help='Scores are rounded to multiples of it before best_of, max_rl and entropic '
    'rank them: what differs by less than the metric can tell is equal; 0: as they are.',
    advanced=True,
  )
  groups: str = option(
    'drawn',
    choices=('drawn', 'prompt'),
    help='Whose scores are compared: samples that were drawn together, or all samples of '
    'an update with the same prompt, token for token.',
    advanced=True,
  )
  window: int = option(
    0,
    unit='scores',
    least=0,
    most=1024,
    help='The last scores of the same task and kind of prompt that best_of, max_rl and '
    'entropic compare an update with, beside its own; prompts may then occur once '
    '(group_size=1). With gae the critic is paid what a score adds to the best of '
    'best_of. 0: none.',
    advanced=True,
  )
  gamma: float = option(
    1.0, above=0, most=1, help='Discount of each token; 1: none.', advanced=True
  )
  lam: float = option(
    1.0, least=0, most=1, help='Lambda of gae.', advanced=True
  )
  clip_low: float = option(
    0.2,
    above=0,
    below=1,
    help='The ratio is clipped at 1 minus this.',
    advanced=True,
  )
  clip_high: float = option(
    0.2, above=0, help='The ratio is clipped at 1 plus this.', advanced=True
  )
  dual_clip: float = option(
    0.0,
    least=0,
    help='Bound of the loss, in multiples of a negative advantage; usually 3; 0: '
    'none.',
    check=must(
      lambda clip: clip == 0 or clip > 1,
      'bounds the loss at that many times a negative advantage; give more than '
      '1, usually 3, or 0 for none.',
    ),
    advanced=True,
  )
  value_clip: float = option(
    0.5,
    above=0,
    help='How far a value may move from the old one.',
    advanced=True,
  )
  kl_kind: str = option(
    'k3',
    choices=('k1', 'k2', 'k3'),
    help='KL estimate: k2 or k3 in the loss, k1 in the reward.',
    advanced=True,
  )
  kl_in: str = option(
    'loss',
    choices=tuple(USEFUL_KL),
    help='Where KL to the reference enters.',
    advanced=True,
  )
  kl_coef: float = option(
    0.02, least=0, help='Weight of KL to the reference; 0: no reference.'
  )
  kl_target: float = option(
    0.0,
    unit='nats a token',
    least=0,
    help='KL that kl_coef is adapted to; 0: kl_coef is fixed.',
    advanced=True,
  )
  kl_horizon: int = option(
    10_000,
    unit='samples',
    help='Samples over which kl_coef adapts.',
    advanced=True,
  )
  entropy_coef: float = option(
    0.0, least=0, help='Weight of the entropy bonus; 0: none.'
  )
  entropy_metric: bool = option(
    True,
    help='Measure the entropy where entropy_coef is 0, too; costs a pass over '
    'the logits.',
    advanced=True,
  )
  max_grad_norm: float = option(
    1.0, above=0, help='Gradients are scaled down to it.', advanced=True
  )
  aggregation: str = option(
    'token-mean',
    choices=('token-mean', 'seq-mean-token-sum', 'seq-mean-token-mean'),
    help='How the loss is summed over tokens and samples.',
    advanced=True,
  )
  micro_batch_tokens: int = option(
    4096,
    unit='tokens',
    help='Padded tokens that one device holds in a pass; a longer row is one '
    'row a device.',
  )
  row_layout: str = option(
    'auto',
    choices=('auto', 'flat', 'packed'),
    help='How samples of different lengths share rows; packed: several short rows a '
    'pass; flat: one long row a pass, for attention that skips other samples; auto: '
    'flat on one CPU device with attention by blocks and 600,000 weights or more, else '
    'packed.',
    advanced=True,
  )
  share_prompts: bool = option(
    False,
    help='Compute a prompt that several samples of an update have once, forward and '
    'backward; for groups with long prompts.',
    advanced=True,
  )
  product_dtype: str = option(
    'float32',
    choices=PRODUCT_DTYPES,
    help='Precision of what the learner multiplies where model.dtype is float32; sums '
    'stay float32. bfloat16: for one CPU device with tiles (AMX); auto: bfloat16 there, '
    'else float32.',
    advanced=True,
  )
  chunk_rows: int = option(
    1024,
    unit='tokens',
    help='Tokens of a device whose logits exist at once.',
    advanced=True,
  )
  reference_dtype: str = option(
    'float32',
    choices=DTYPES,
    help='Precision of the frozen reference.',
    advanced=True,
  )
  offload: tuple[str, ...] = option(
    (),
    choices=OFFLOADED,
    help='What lies in pinned host memory while it is not used, on '
    'accelerators; (): nothing.',
    advanced=True,
  )
  donate: bool = option(
    False,
    help='Write the new policy over the old one; a holder of the old one must '
    'have copied it.',
    advanced=True,
  )
  grad_reduce_dtype: str = option(
    'float32',
    choices=DTYPES,
    help='Precision of gradients while they are summed over devices.',
    advanced=True,
  )
  importance_level: str = option(
    'token',
    choices=('none', 'token', 'sequence'),
    help='Unit of truncated importance sampling against the sampler; none: '
    'off.',
    advanced=True,
  )
  importance_cap: float = option(
    2.0, above=0, help='Where the importance ratio is cut.', advanced=True
  )
  baseline: str = option(
    'mean',
    choices=('mean', 'optimal', 'weighted'),
    help='What advantages are centred on. optimal, where a whole batch is whitened: '
    'least variance under duration weight times importance ratio. weighted, where a '
    'group is: its mean under the duration weights (docs/best_of.md).',
  )
  step_size: str = option(
    'fixed',
    choices=('fixed', 'ess'),
    help="ess: the policy's step times the root of the effective sample share "
    '(VCPO).',
    advanced=True,
  )

  relations = (
    relation(
      'reference_dtype',
      'kl_coef',
      holds=lambda dtype, coefficient: dtype == 'float32' or coefficient > 0,
      say='{at}reference_dtype={reference_dtype!r} is for the reference, which '
      "no run with {at}kl_coef={kl_coef} has; set it to 'float32'.",
    ),
    relation(
      'offload',
      'kl_coef',
      holds=lambda roles, coefficient: (
        'reference' not in roles or coefficient > 0
      ),
      say='{at}offload={offload!r}: no run with {at}kl_coef={kl_coef} has a '
      'reference; leave it out.',
    ),
    relation(
      'offload',
      'estimator',
      holds=lambda roles, name: (
        name == 'gae' or not {'value', 'value_optimizer'} & set(roles)
      ),
      say='{at}offload={offload!r}: {at}estimator={estimator!r} has no value '
      'model; leave it out.',
    ),
    *(
      relation(
        'baseline',
        'estimator',
        holds=lambda baseline, name, given=given, those=those: (
          baseline != given or name in those
        ),
        say=f'{{at}}baseline={{baseline!r}} is for the estimators that centre {what}, '
        f'{", ".join(those)}; {{at}}estimator={{estimator!r}} takes '
        f"'mean' or {other!r}.",
      )
      for given, other, those, what in (
        ('optimal', 'weighted', CENTRED, 'a whole batch'),
        ('weighted', 'optimal', GROUPED, 'a group'),
      )
    ),
    relation(
      'ties',
      'estimator',
      'window',
      holds=lambda ties, name, window: (
        not ties or name in ON_THE_HOST or (name == 'gae' and window)
      ),
      say='{at}ties={ties} is for the estimators that rank scores, '
      f'{", ".join(ON_THE_HOST)}, and for gae with a window; '
      '{at}estimator={estimator!r} takes them as they are: set it to 0.',
    ),
    relation(
      'window',
      'estimator',
      holds=lambda window, name: not window or name in (*ON_THE_HOST, 'gae'),
      say='{at}window={window} is for the estimators that rank scores, '
      f'{", ".join(ON_THE_HOST)}, and for gae; {{at}}estimator={{estimator!r}} has no '
      'use for it: set it to 0.',
    ),
    relation(
      'window',
      'best_of',
      'estimator',
      holds=lambda window, k, name: (
        not window or name not in (*OF_THE_BEST, 'gae') or k < window
      ),
      say='{at}window={window} must be above {at}best_of={best_of}, the samples of '
      'which the best counts; raise the first (64 to 256), or lower the last.',
    ),
    relation(
      'window',
      'groups',
      holds=lambda window, groups: not window or groups == 'drawn',
      say='{at}window={window} compares all samples of one task and kind, and '
      "{at}groups={groups!r} those of one prompt; set one of them, to 0 or to 'drawn'.",
    ),
    relation(
      'groups',
      'estimator',
      holds=lambda groups, name: groups == 'drawn' or name in GROUPED,
      say='{at}groups={groups!r} is for the estimators that compare a group, '
      f'{", ".join(GROUPED)}; {{at}}estimator={{estimator!r}} has none: set it to '
      "'drawn'.",
    ),
    relation(
      'estimator',
      'kl_in',
      'kl_coef',
      holds=lambda name, place, coefficient: (
        name not in ON_THE_HOST or place != 'reward' or not coefficient
      ),
      say='{at}estimator={estimator!r} ranks scores, which {at}kl_in={kl_in!r} would '
      "mix with a KL; set it to 'loss', or {at}kl_coef={kl_coef} to 0.",
    ),
    relation(
      'dual_clip',
      'ppo_epochs',
      'minibatches',
      holds=lambda clip, epochs, parts: not clip or epochs > 1 or parts > 1,
      say='{at}dual_clip={dual_clip} has no effect in the first step on a batch, '
      'and {at}ppo_epochs={ppo_epochs} with {at}minibatches={minibatches} takes '
      'no other step; raise one of them, or set dual_clip to 0.',
    ),
    relation(
      'kl_kind',
      'kl_in',
      'kl_coef',
      holds=lambda kind, place, coefficient: (
        not coefficient or kind in USEFUL_KL[place]
      ),
      say='{at}kl_kind={kl_kind!r} with {at}kl_in={kl_in!r} does not pull '
      "towards the reference: its expected gradient is no KL divergence's. In "
      'the loss take k2 (that of KL(policy || reference)) or k3 (that of '
      'KL(reference || policy)), in the reward k1; or set '
      '{at}kl_coef={kl_coef} to 0.',
    ),
    relation(
      'kl_target',
      'kl_coef',
      holds=lambda target, coefficient: not target or coefficient,
      say='{at}kl_target={kl_target} adapts {at}kl_coef={kl_coef} by factors, so '
      'kl_coef must start above 0; raise it, or set kl_target to 0.',
    ),
    *(
      relation(
        key,
        'estimator',
        holds=lambda value, name, needs=needs: value == 1 or name in needs,
        say=f'{{at}}{key}={{{key}}} is not read by '
        f'{{at}}estimator={{estimator!r}}, but by {" and ".join(needs)}; set '
        'it to 1.',
      )
      for key, needs in (('gamma', DISCOUNTED), ('lam', ('gae',)))
    ),
  )


@dataclasses.dataclass(frozen=True)
class SftOptions(Section):
  """Rates of fine-tuning, part of section `sft`."""

  lr: float = option(4e-3, above=0, help='AdamW rate.')
  schedule: str = option(
    'cosine',
    choices=SCHEDULES,
    help='Schedule of the rate; cosine: down to a tenth at the end.',
    advanced=True,
  )
  warmup_steps: int = option(
    20, unit='optimizer steps', least=0, help='Linear warm-up; 0: none.'
  )


@dataclasses.dataclass(frozen=True)
class LearnerConfig(LearnerOptions):
  """`LearnerOptions` and what a run derives of its other options.

  Args:
    temperature: that samples are drawn at; > 0.
    steps, sft_steps: optimizer steps, the lengths of a cosine, which ends at a
      tenth of the rate.
    sft_lr, sft_warmup_steps, sft_schedule: of fine-tuning; `Learner.start_sft`
      sets them.
    adam_b1, adam_b2: of AdamW.
    row_tokens: row lengths allowed, each a static shape.
    max_nonfinite: updates in a row that may be skipped for their gradients.
    full_sft: fine-tuning trains all weights of a model that has adapters in RL.
    merge_adapters: `policy_params` has adapters merged; False: beside their base.

  Raises ValueError for what does not fit.
  """

  temperature: float = 1.0
  steps: int = 0
  sft_lr: float = SftOptions.lr
  sft_warmup_steps: int = 0
  sft_steps: int = 0
  sft_schedule: str = 'constant'
  adam_b1: float = 0.9
  adam_b2: float = 0.999
  row_tokens: tuple[int, ...] = batching.DEFAULT_ROW_TOKENS
  max_nonfinite: int = 5
  full_sft: bool = False
  merge_adapters: bool = True

  def __post_init__(self):
    super().__post_init__()
    sft = {name: getattr(self, f'sft_{name}') for name in SftOptions.options()}
    if complaint := SftOptions.options_complaint(sft, 'sft_'):
      raise ValueError(complaint)
    if not self.temperature > 0:
      raise ValueError(f'temperature={self.temperature} must be above zero.')
    for name, steps in (('schedule', 'steps'), ('sft_schedule', 'sft_steps')):
      if getattr(self, name) == 'cosine' and getattr(self, steps) < 1:
        raise ValueError(f"{name}='cosine' needs {steps}, its length.")

  @property
  def uses_value(self) -> bool:
    """Whether the estimator needs a critic."""
    return self.estimator == 'gae'

  @property
  def uses_reference(self) -> bool:
    """Whether any KL to the reference enters."""
    return self.kl_coef > 0
