"""Supervised fine-tuning (paper 000, 4.1): the model's own tokens carry loss."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxagent.checkpoint import CheckpointManager
from jaxagent.metrics import ProgressBar
from jaxagent.training import multi_process

if TYPE_CHECKING:
  from jaxagent.learner import Learner
  from jaxagent.runtime.context import RunContext
  from jaxagent.training.multi_process import Leader
  from jaxagent.training.policy import PolicySampler

Row = tuple[np.ndarray, np.ndarray]


def rows(
  pairs: Iterable[tuple[np.ndarray, str]], policy: PolicySampler
) -> list[Row]:
  """Returns (tokens [N], loss mask [N]) of each (prompt's tokens [P], response).

  Responses longer than the policy may write are left out.
  """
  made = []
  for prompt, response in pairs:
    answer = policy.tokenizer.encode_response(response)
    if len(answer) > policy.sampling.max_new_tokens:
      continue
    tokens = np.concatenate([prompt, np.asarray(answer, np.int32)])
    mask = np.zeros(len(tokens), bool)
    mask[len(prompt) :] = True
    made.append((tokens, mask))
  return made


def distinct(made: Sequence[Row]) -> list[Row]:
  """Returns the rows without repetitions, in the order of their first appearance."""
  first: dict[tuple[bytes, bytes], Row] = {}
  for tokens, mask in made:
    first.setdefault((tokens.tobytes(), mask.tobytes()), (tokens, mask))
  return list(first.values())


def run(
  context: RunContext, learner: Learner | Leader, rows: Sequence[Row]
) -> None:
  """Trains for `sft.epochs` (0: not at all); resumes from the last checkpoint."""
  config = context.config.sft
  per_epoch = max(1, len(rows) // config.batch_size)
  total = per_epoch * config.epochs
  if not total:
    return  # RL from the model as it is
  learner.start_sft(
    lr=config.lr,
    total_steps=total,
    warmup_steps=config.warmup_steps,
    schedule=config.schedule,
  )
  checkpoints = CheckpointManager(context.work / 'sft' / 'checkpoints', keep=2)
  restored = multi_process.restore(learner, checkpoints)
  start = kept = 0  # steps that are done, and saved
  if restored is not None:
    learner.load_host_state(restored.host['learner'])
    start = kept = restored.step
  with (
    context.metric_writer('sft', resume_step=start) as writer,
    ProgressBar('sft', total, initial=start) as progress,
  ):
    for step in range(start, total):
      began = time.monotonic()
      chosen = _batch(rows, step, per_epoch, config.batch_size, context)
      metrics = learner.sft_step(learner.sft_batches(chosen))
      metrics['timing_s/step'] = time.monotonic() - began
      writer.write(step, metrics)
      progress.update(1, loss=metrics['sft/loss'])
      last = step + 1 == total
      context.stop.raise_error()
      stopping = context.stop.asked
      if last or stopping or (step + 1) % config.checkpoint_every == 0:
        host_state = {'learner': learner.host_state()}
        with context.stop.saving():
          multi_process.save(learner, checkpoints, step + 1, host_state)
        kept = step + 1
      context.stop.saved = (
        f'SFT step {kept} is saved' if kept else 'no step of SFT is saved yet'
      )
      if stopping:
        context.stop.check()


def _batch(
  rows: Sequence[Row],
  step: int,
  per_epoch: int,
  size: int,
  context: RunContext,
) -> list[Row]:
  """Returns the step's rows: each epoch is a seeded permutation."""
  epoch, position = divmod(step, per_epoch)
  rng = np.random.default_rng([context.config.seed, 3, epoch])
  order = rng.permutation(len(rows))
  return [rows[i] for i in order[position * size : (position + 1) * size]]
