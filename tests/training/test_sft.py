"""A fine-tuning that is to stop: by a signal, or for a directory that it lost."""

import signal

import numpy as np
import pytest

from configs import common
from jaxagent.checkpoint import CheckpointManager
from jaxagent.errors import Interrupted, MachineryError
from jaxagent.runtime.stop import StopFlag
from jaxagent.training import sft
from tests import made

ROWS = [(np.arange(4, dtype=np.int32), np.ones(4, bool))] * 4


class Learner:
  """A learner that counts its steps; `after` is called at the end of each."""

  start_sft = staticmethod(lambda **options: None)
  sft_batches = staticmethod(lambda rows: rows)

  def __init__(self, after):
    self.steps, self._after = 0, after

  def sft_step(self, batches):
    self.steps += 1
    self._after(self.steps)
    return {'sft/loss': 1.0}

  def host_state(self):
    return {'steps': self.steps}

  def state(self):
    return {'w': np.zeros(1)}


@pytest.mark.parametrize(
  'error, saved, last',
  [
    (None, 3, 'SFT step 3 is saved'),
    (MachineryError('the folder is gone'), 2, 'the folder is gone'),
  ],
)
def test_a_stopped_fine_tuning_saves_its_step_unless_the_folder_is_lost(
  error, saved, last, tmp_path
):
  config = common.base()
  config.sft.epochs, config.sft.batch_size = 9, 4
  config.sft.checkpoint_every = 2
  stop = StopFlag(within_s=None)
  context = made.Host(config=config, work=tmp_path, stop=stop)

  def after(step):
    if step == 3:
      stop.fail(error) if error else stop.ask(signal.SIGTERM)

  learner = Learner(after)
  with pytest.raises(Interrupted if error is None else MachineryError) as said:
    sft.run(context, learner, ROWS)
  assert last in str(said.value) and learner.steps == 3
  kept = CheckpointManager(tmp_path / 'sft' / 'checkpoints', keep=2).latest()
  assert (kept.step, kept.host['learner']) == (saved, {'steps': saved})
