"""Metrics of a run: their names, TensorBoard, a JSONL file, and the console.

One table, `METRICS`, names everything that may be logged. Names shared with
verl keep verl's spelling and meaning, so that curves can be laid side by side;
the rest describes the sandbox and the asynchronous core. `docs/metrics.md` is
printed from the table (`python -m jaxagent.metrics > docs/metrics.md`) and a
test holds the two together.

No jax here: values may be anything that `float()` takes.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import math
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TextIO

from jaxagent.types import OPERATORS

_STATS = {'mean': 'mean', 'max': 'largest', 'min': 'smallest'}
_QUANTILES = {
  'mean': 'mean',
  'max': 'largest',
  'p50': 'median',
  'p95': '95th percentile',
}


def _each(prefix: str, kinds: Mapping[str, str], text: str) -> dict[str, str]:
  """`prefix/kind` for every kind, described as 'text: what the kind is'."""
  return {f'{prefix}/{k}': f'{text}: {v}' for k, v in kinds.items()}


_CRITIC = (
  ('score', 'reward of a sequence before any KL penalty'),
  ('rewards', 'reward of a sequence after any KL penalty'),
  ('advantages', 'advantage of a policy token'),
  ('returns', 'return of a policy token'),
  ('values', 'value of a policy token'),
)
_STAGES = {
  'gen': 'waited for the batch, which is sampled and executed meanwhile',
  'old_log_prob': 'log-probs at the start of the update',
  'ref': 'log-probs of the reference policy',
  'values': 'values of the critic',
  'adv': 'advantages',
  'update_actor': 'policy update',
  'update_critic': 'value update',
  'update_weights': 'new weights to the engine',
  'save_checkpoint': (
    'waited for checkpoints after the update before: for the write of an earlier one, '
    'and for the copy of what is saved'
  ),
  'write_checkpoint': (
    'the newest checkpoint that is whole, copy and write, most of it beside an update'
  ),
  'testing': 'validation after the update',
  'step': 'one whole update (of RL: with the checkpoint before it)',
}
# Names that verl's users know, with verl's meaning.
_VERL: dict[str, str] = {
  'actor/pg_loss': 'policy loss, aggregated over policy tokens',
  'actor/pg_clipfrac': 'share of policy tokens whose ratio was clipped',
  'actor/pg_clipfrac_lower': 'share of policy tokens cut by the dual clip',
  'actor/ppo_kl': 'mean of old log-prob minus current log-prob (k1)',
  'actor/entropy': 'mean entropy of the policy at its tokens, nats',
  'actor/kl_loss': 'KL to the reference policy, by the estimator chosen',
  'actor/kl_coef': 'coefficient of the KL in the loss',
  'actor/reward_kl_penalty': 'KL per token taken from the reward',
  'actor/reward_kl_penalty_coeff': 'coefficient of the KL in the reward',
  'actor/grad_norm': 'global norm of the policy gradient before clipping',
  'actor/lr': 'learning rate of the policy',
  'critic/vf_loss': 'value loss',
  'critic/vf_clipfrac': 'share of tokens whose value error was clipped',
  'critic/vf_explained_var': '1 - Var(return - value) / Var(return)',
  'critic/grad_norm': 'global norm of the value gradient before clipping',
  'critic/lr': 'learning rate of the value model',
  'response_length/clip_ratio': 'share of responses cut at the token limit',
  'perf/total_num_tokens': 'tokens in the update, prompts included',
  'perf/throughput': 'tokens per second and device',
  'perf/mfu/actor': (
    "share of the devices' peak FLOPs (bfloat16) that the policy's gradients and "
    'steps use, by the FLOPs of the model; not on a CPU or an unknown accelerator'
  ),
  'perf/mfu/critic': 'the same of the value model',
  'training/global_step': 'updates finished',
  'val-core/': (
    'validation after the update, TASK/reward/mean@N: reward of a rollout, mean of '
    "the N of each of the task's prompts (config.rl.validate_samples)"
  ),
  'training/rollout_probs_diff_mean': (
    'mean |p sampler - p trainer| over policy tokens'
  ),
  'training/rollout_probs_diff_max': (
    'largest |p sampler - p trainer| over policy tokens'
  ),
  'training/rollout_probs_diff_std': (
    'standard deviation of |p sampler - p trainer|'
  ),
  'training/rollout_logps_diff_mean': (
    'mean |log p sampler - log p trainer| over policy tokens, nats'
  ),
  'training/rollout_logps_diff_p99': 'the same: 99th percentile',
  'training/rollout_logps_diff_max': 'the same: largest',
  'training/importance_capped_fraction': (
    'share of policy tokens whose importance ratio was capped'
  ),
}
for _key, _text in _CRITIC:
  _VERL |= _each(f'critic/{_key}', _STATS, _text)
_VERL |= _each('response_length', _STATS, 'tokens of the response')
_VERL |= _each('prompt_length', _STATS, 'tokens of the prompt')
_VERL |= {f'timing_s/{k}': f'seconds: {v}' for k, v in _STAGES.items()}

_DROPPED = {
  'lt_1s': 'below 1 s',
  'lt_10s': '1 to 10 s',
  'lt_60s': '10 to 60 s',
  'lt_300s': '60 to 300 s',
  'lt_1800s': '300 to 1800 s',
  'ge_1800s': '1800 s and more',
}
_ISSUED = {
  'dispatched': 'execution seconds of what was issued',
  'finished': 'execution seconds of what finished',
  'trained': 'execution seconds of what was trained',
}
# Sandbox, durations and the asynchronous core.
_JAXAGENT: dict[str, str] = {
  'sandbox/outcome/': 'samples of the update by outcome, as a share',
  'sandbox/queue_s': 'seconds in the queue, mean of an execution',
  'sandbox/startup_s': 'seconds of start-up, mean of an execution',
  'sandbox/cpu_s': 'CPU seconds of the process tree, mean of an execution',
  'sandbox/valid_action_rate': 'share of responses that parse and may run',
  'sandbox/edit_rate': 'share of responses that edit the script',
  'sandbox/changed_rate': (
    'share of responses that left another script: a diff, and its run was ok'
  ),
  'sandbox/distinct_edits': (
    'different edits (by task and lines written) over edits'
  ),
  'sandbox/malformed_rate': 'share of responses that do not parse',
  'sandbox/timeout_rate': 'share of executions that timed out',
  'sandbox/exec_s': 'execution seconds, mean of an execution',
  'duration/weight_capped_fraction': (
    'share of step weights cut at config.rl.weight_cap, of steps that ran'
  ),
  'duration/weight_max': 'largest weight of a step that ran',
  'duration/weight_max_uncapped': 'the same before the cap',
  'duration/weight_ess': (
    'effective sample share of the weights, (sum w)^2 / (n sum w^2), of '
    'steps that ran'
  ),
  'actor/weight_ess': (
    'effective sample share, (sum w)^2 / (n sum w^2), of duration weight '
    'times importance ratio of each step'
  ),
  'duration/inclusion_effective_fraction': (
    'effective sample size under inclusion weights, as a share'
  ),
  'duration/inclusion_positivity_failures': (
    'samples whose inclusion probability was too small to invert'
  ),
  'duration/inclusion_probability_min': 'smallest inclusion probability',
  'duration/inclusion_weight_max': 'largest inclusion weight',
  'staleness/mean': 'updates between sampling and use, mean of the batch',
  'staleness/max': 'updates between sampling and use, largest',
  'staleness/dropped': 'samples dropped at the bound since the last record',
  'staleness/over_bound': 'samples used beyond the bound (policy keep)',
  'buffer/size': 'finished samples waiting for the learner',
  'buffer/running': 'executions with the sandbox, waiting for a slot or in it',
  'buffer/generating': 'completions being drawn',
  'buffer/in_flight': 'interactions under way, whatever they wait for',
  'buffer/pending': 'prompts not yet issued',
  'buffer/quarantined': 'prompts given up after repeated failures',
  'buffer/cancelled': 'running prompts cancelled since the last record',
  'buffer/infrastructure': 'infrastructure failures since the last record',
  'buffer/expired': 'of these, attempts that outlived their lease (rl.lease_s)',
  'buffer/ignored': 'results that came too late to count',
  'buffer/rejected': 'rollouts that broke their contract or earned no reward',
  'scheduler/learner_idle_s': 'seconds the learner waited for a batch',
  'scheduler/worker_use': 'worker seconds at work over worker seconds',
  'scheduler/interval_s': 'seconds between two batches',
  'learner/recompiles': (
    'programs compiled after the first two updates, by learner, engine or '
    'any other part of the process: one for each shape that is met later '
    '(a rare number of rows), and none after that'
  ),
  'learner/skipped_updates': 'updates skipped for a non-finite gradient',
  'learner/compiles': 'programs compiled by the process so far, or read',
  'learner/compiles_cached': (
    'of these, those read from the cache of an earlier start (config.compile_cache)'
  ),
  'learner/rejected': 'samples of the batch that could not be used',
  'learner/padding': 'share of the batch that is padding',
  'learner/shared': 'share of the batch that prompts computed once have spared '
  '(rl.share_prompts)',
  'val/reward/mean': (
    'validation after the update: reward of a rollout, mean of its prompts; the best '
    'checkpoint is the one where it is highest (config.rl.keep_best)'
  ),
  'val/rollouts': 'rollouts of the validation that ended',
  'val/missing': 'rollouts of the validation that infrastructure errors ended',
  'sft/loss': 'cross-entropy of the expert tokens at rollout.temperature, nats per token',
  'sft/grad_norm': 'global norm of the gradient before clipping',
  'sft/lr': 'learning rate',
  'sft/tokens': 'expert tokens in the step',
}
_JAXAGENT |= {
  f'staleness/dropped_{k}': f'drops by execution time: {v}'
  for k, v in _DROPPED.items()
}
for _key, _text in _ISSUED.items():
  _JAXAGENT |= _each(f'duration/{_key}', _QUANTILES, _text)

_SOLUTIONS: dict[str, str] = {
  'solution/valid_rate': 'share of solutions with a valid submission',
  'solution/improve_rate': 'share of prompts with a previous solution',
  'solution/milestones': 'milestones reached, mean of the solutions that failed',
  'solution/refused_rate': 'share of programs that the instrumenter left as they are',
  'solution/score/': 'validation score, mean of the valid solutions of a task',
}
for _name, _text in (
  ('share', 'share of the solutions that it asked for'),
  ('valid', 'share of its solutions with a valid submission'),
  (
    'gain',
    "reward less what the better parent's score earns, mean of its valid solutions",
  ),
  (
    'new_best',
    "share of its solutions better than all of the task's before the update",
  ),
):
  for _operator in OPERATORS:
    _SOLUTIONS[f'solution/{_name}/{_operator}'] = f'{_operator}: {_text}'

# A key that ends in '/' admits every name beneath it.
METRICS: dict[str, str] = _VERL | _JAXAGENT | _SOLUTIONS
_added: dict[str, str] = {}  # of recipes that this process runs


def add(described: Mapping[str, str]) -> None:
  """Admits metrics of a recipe, each with its description.

  Raises ValueError for a name without a prefix, such as 'ideas/rate', or one that
  stands for something else already.
  """
  for name, text in described.items():
    if '/' not in name.strip('/') or METRICS.get(name, text) != text:
      raise ValueError(
        f'metric {name!r} of a recipe must be PREFIX/NAME and not one of '
        'jaxagent.metrics.METRICS; give it another name.'
      )
  _added.update(described)


def check_names(names: Iterable[str]) -> None:
  """Raises ValueError for the first name that `METRICS` does not admit."""
  known = METRICS | _added
  for name in names:
    if name in known and not name.endswith('/'):
      continue
    parts = name.split('/')
    prefixes = ('/'.join(parts[:i]) + '/' for i in range(1, len(parts)))
    if parts[-1] and any(p in known for p in prefixes):
      continue
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f'; did you mean {", ".join(near)}?' if near else '.'
    raise ValueError(
      f'unknown metric {name!r}{hint} A new metric is added with its '
      'description to METRICS in jaxagent/metrics.py, then '
      '`python -m jaxagent.metrics > docs/metrics.md`.'
    )


class MetricWriter:
  """Writes scalars to TensorBoard and to `metrics.jsonl`.

  log_dir: made if missing; event files and `metrics.jsonl` lie in it.
  resume_step: None starts anew (an earlier `metrics.jsonl` is kept aside as
    `metrics.N.jsonl`). A number continues it: records at or beyond it, and a
    last line cut short by a kill, are removed, because those steps run again.
  board: whether TensorBoard's event files are written.

  Each line holds `step`, `time` (seconds since 1970) and the metrics; a value
  that is not finite is written as null, so that the file stays plain JSON.
  """

  def __init__(
    self,
    log_dir: str | os.PathLike,
    *,
    resume_step: int | None = None,
    board: bool = True,
  ):
    self._dir = pathlib.Path(log_dir)
    try:
      self._dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
      raise OSError(
        f'cannot make the log directory {self._dir}: {error.strerror}; '
        'choose another with --work_dir.'
      ) from error
    self.path = self._dir / 'metrics.jsonl'
    if resume_step is None:
      _put_aside(self.path)
    else:
      truncate_records(self.path, resume_step)
    self._file = self.path.open('a', encoding='utf-8')
    self._board = _Board(self._dir, resume_step) if board else None

  def write(self, step: int, metrics: Mapping[str, Any]) -> None:
    """Logs `metrics` at `step`; raises ValueError for unknown names."""
    check_names(metrics)
    values = {name: _number(name, value) for name, value in metrics.items()}
    record: dict[str, Any] = {'step': int(step), 'time': time.time()}
    for name, value in values.items():
      record[name] = value if math.isfinite(value) else None
    self._file.write(json.dumps(record) + '\n')
    self._file.flush()
    if self._board is not None:
      self._board.write(int(step), values)

  def close(self) -> None:
    """Flushes and closes both; a second call does nothing."""
    if not self._file.closed:
      self._file.flush()
      os.fsync(self._file.fileno())
      self._file.close()
      if self._board is not None:
        self._board.close()

  def __enter__(self) -> MetricWriter:
    return self

  def __exit__(self, *unused: object) -> None:
    self.close()


def read_records(path: str | os.PathLike) -> list[dict[str, Any]]:
  """Records of a `metrics.jsonl`, oldest first; a cut last line is left out.

  Raises ValueError, naming the line, where any other line is not a record.
  """
  path = pathlib.Path(path)
  lines = path.read_text(encoding='utf-8').split('\n')
  records = []
  for number, line in enumerate(lines, 1):
    if not line.strip():
      continue
    try:
      record = json.loads(line)
      record['step'] = int(record['step'])
    except (ValueError, KeyError, TypeError) as error:
      if number == len(lines):  # no newline after it: the write was cut
        break
      raise ValueError(
        f'{path}:{number} is not a metrics record ({error}); '
        'remove the line or the file.'
      ) from error
    records.append(record)
  return records


def truncate_records(path: str | os.PathLike, resume_step: int) -> int:
  """Takes out records with step >= resume_step; returns how many went."""
  path = pathlib.Path(path)
  if not path.exists():
    return 0
  records = read_records(path)
  kept = [r for r in records if r['step'] < resume_step]
  part = path.with_suffix('.part')
  with part.open('w', encoding='utf-8') as file:
    file.writelines(json.dumps(r) + '\n' for r in kept)
    file.flush()
    os.fsync(file.fileno())
  os.replace(part, path)
  return len(records) - len(kept)


def _put_aside(path: pathlib.Path) -> None:
  """Renames an earlier file to metrics.N.jsonl: logs are never lost."""
  if not path.exists():
    return
  number = 1
  while (aside := path.with_name(f'metrics.{number}.jsonl')).exists():
    number += 1
  path.rename(aside)


@contextlib.contextmanager
def _no_torch() -> Iterator[None]:
  """Lets imports within find no PyTorch, unless it is loaded.

  tensorboardX loads it wherever it is installed, for a type that is not used here:
  3 s of every start.
  """
  if 'torch' in sys.modules:
    yield
    return
  sys.modules['torch'] = None  # type: ignore[assignment]
  try:
    yield
  finally:
    del sys.modules['torch']


class _Board:
  """TensorBoard's event file, written by the thread that logs.

  tensorboardX's SummaryWriter writes from a thread of its own; on a full disk
  that thread dies unseen, and what logs next waits for it for ever.
  """

  def __init__(self, log_dir: pathlib.Path, resume_step: int | None):
    # Slow to import, and not needed to read records.
    with _no_torch():
      from tensorboardX import event_file_writer
      from tensorboardX.proto import event_pb2, summary_pb2

    self._event, self._summary = event_pb2.Event, summary_pb2.Summary
    # A name holds a whole second: a second writer within it would empty the file
    # of the first. Viewers read a folder's files in the order of their names.
    nanoseconds = time.time_ns() % 10**9
    self._writer = event_file_writer.EventsWriter(
      str(log_dir / 'events'), f'.{nanoseconds:09d}.{os.getpid()}'
    )
    if resume_step is not None:
      # Viewers drop earlier points at or beyond it: they are run again.
      start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
      self._add(resume_step, session_log=start)
    self._writer.flush()

  def write(self, step: int, values: Mapping[str, float]) -> None:
    for name, value in values.items():
      point = self._summary.Value(tag=name, simple_value=value)
      self._add(step, summary=self._summary(value=[point]))
    self._writer.flush()

  def close(self) -> None:
    self._writer.close()

  def _add(self, step: int, **what: Any) -> None:
    self._writer.write_event(
      self._event(step=step, wall_time=time.time(), **what)
    )


def _number(name: str, value: Any) -> float:
  try:
    return float(value)
  except (TypeError, ValueError) as error:
    raise ValueError(
      f'metric {name!r} must be one number, not {type(value).__name__} '
      f'{str(value)[:80]!r}.'
    ) from error


class ProgressBar:
  """Progress of a stage: a bar on a terminal, plain lines elsewhere.

  total: units of work in all; None where unknown (no time left is shown).
  initial: units done before this process started (a resumed stage).
  every_s: least seconds between plain lines.

  Used as a context manager; `update(n, loss=1.2)` after every n units.
  """

  def __init__(
    self,
    stage: str,
    total: int | None,
    *,
    initial: int = 0,
    every_s: float = 5.0,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
  ):
    self.stage, self.total, self.done = stage, total, initial
    self._initial, self._every_s, self._clock = initial, every_s, clock
    self._stream = stream if stream is not None else sys.stderr
    self._start = clock()
    self._printed_at = -math.inf
    self._printed_done = -1
    self._info = ''
    self._closed = False
    self._bar = self._task = None
    if self._stream.isatty() and os.environ.get('TERM') != 'dumb':
      self._bar, self._task = _rich_bar(stage, total, initial, self._stream)

  def update(self, n: int = 1, **info: Any) -> None:
    """Counts n more units done; `info` is shown beside them."""
    self.done += n
    if info:
      self._info = ' '.join(f'{k}={_short(v)}' for k, v in info.items())
    if self._bar is not None:
      self._bar.update(self._task, completed=self.done, info=self._info)
    elif self._clock() - self._printed_at >= self._every_s:
      self._line()

  def left_s(self) -> float | None:
    """Seconds left at the mean pace of this process; None where unknown."""
    here = self.done - self._initial
    if self.total is None or here <= 0:
      return None
    pace = (self._clock() - self._start) / here
    return max(self.total - self.done, 0) * pace

  def close(self) -> None:
    """Prints the last state and gives the terminal back."""
    if self._closed:
      return
    self._closed = True
    if self._bar is not None:
      self._bar.stop()
    elif self._printed_done != self.done:
      self._line()

  def _line(self) -> None:
    self._printed_at, self._printed_done = self._clock(), self.done
    parts = [f'[{self.stage}] {self.done}']
    if self.total:
      parts[0] += f'/{self.total} ({100 * self.done / self.total:.0f} %)'
    parts.append(f'{_clock_text(self._clock() - self._start)} elapsed')
    left = self.left_s()
    if left is not None and self.done < (self.total or 0):
      parts.append(f'{_clock_text(left)} left')
    if self._info:
      parts.append(self._info)
    print(', '.join(parts), file=self._stream, flush=True)

  def __enter__(self) -> ProgressBar:
    return self

  def __exit__(self, *unused: object) -> None:
    self.close()


def _rich_bar(
  stage: str, total: int | None, initial: int, stream: TextIO
) -> tuple[Any, Any]:
  from rich import console, progress

  bar = progress.Progress(
    progress.TextColumn('{task.description}'),
    progress.BarColumn(),
    progress.MofNCompleteColumn(),
    progress.TimeElapsedColumn(),
    progress.TextColumn('left'),
    progress.TimeRemainingColumn(),
    progress.TextColumn('{task.fields[info]}', markup=False),
    console=console.Console(file=stream),
    refresh_per_second=4,
  )
  bar.start()
  return bar, bar.add_task(stage, total=total, completed=initial, info='')


def _short(value: Any) -> str:
  return f'{value:.4g}' if isinstance(value, float) else str(value)


def _clock_text(seconds: float) -> str:
  minutes, second = divmod(int(seconds), 60)
  hours, minute = divmod(minutes, 60)
  return (
    f'{hours}:{minute:02d}:{second:02d}' if hours else f'{minute}:{second:02d}'
  )


def markdown() -> str:
  """`docs/metrics.md`, made from the table."""
  lines = [
    '# Metrics',
    '',
    'Everything a run logs, to TensorBoard and to `metrics.jsonl` (one object '
    'a line: `step`, `time`, and the metrics; `null` where a value was not '
    'finite). This page is printed from the table in `jaxagent/metrics.py` '
    '(`python -m jaxagent.metrics > docs/metrics.md`); a test holds them '
    'together, and a name that is not in the table is refused when logged.',
    '',
    'A name that ends in `/` stands for every name beneath it.',
    '',
  ]
  for title, table in (
    ("Names shared with verl, with verl's meaning", _VERL),
    ('Names of jaxagent', _JAXAGENT),
    ('Names of whole solutions', _SOLUTIONS),
  ):
    lines += [f'## {title}', '', '| name | meaning |', '|---|---|']
    lines += [
      f'| `{k}` | {v.replace("|", chr(92) + "|")} |' for k, v in table.items()
    ]
    lines.append('')
  return '\n'.join(lines)


if __name__ == '__main__':
  print(markdown(), end='')
