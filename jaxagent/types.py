"""Records that cross the borders between packages. NumPy only: no jax here.

Every field states its unit (`_s` seconds, `_mb` MiB, `_kb` KiB) or its shape.
B is the batch (rows), T the padded row length in tokens.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import numbers
import pathlib
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np


class Outcome(str, enum.Enum):
  """Outcome of one action, decided from exit status, signals and counters.

  `invalid_format`, `invalid_action` and `grader_error` come from the
  environment, before or after anything ran; the others are the sandbox's.
  `timeout` is the program's own limit and counts against the policy that wrote it;
  `deadline` is that of the step or trajectory around it, spent in a queue or on a
  retry, and an infrastructure error.
  """

  OK = 'ok'
  SCRIPT_ERROR = 'script_error'
  TIMEOUT = 'timeout'
  OOM = 'oom'
  KILLED = 'killed'
  OUTPUT_LIMIT = 'output_limit'
  DISK_LIMIT = 'disk_limit'
  NO_SUBMISSION = 'no_submission'
  INVALID_SUBMISSION = 'invalid_submission'
  INFRASTRUCTURE = 'infrastructure'
  DEADLINE = 'deadline'
  INVALID_FORMAT = 'invalid_format'
  INVALID_ACTION = 'invalid_action'
  GRADER_ERROR = 'grader_error'

  @property
  def is_infrastructure(self) -> bool:
    """Whether it is an infrastructure error: never a reward, always a retry."""
    return self in (
      Outcome.INFRASTRUCTURE,
      Outcome.DEADLINE,
      Outcome.GRADER_ERROR,
    )

  @property
  def is_corner_case(self) -> bool:
    """Paper 000, equation 6: resource exhaustion, rewarded 0.5."""
    return self in (
      Outcome.TIMEOUT,
      Outcome.OOM,
      Outcome.OUTPUT_LIMIT,
      Outcome.DISK_LIMIT,
      Outcome.KILLED,
    )


class NoReward(str, enum.Enum):
  """The reason why something has no reward.

  infrastructure, grader_error and deadline are infrastructure errors, as in
  Outcome; no_scale: a gain on a task without a known best score; not_credited: the
  recipe learns nothing from it; interaction_broken: the recipe broke its contract;
  generation_failed: no completion came; lease_expired: no answer within
  `rl.lease_s`; prompt_gone: its item left the pool while the run was stopped.
  """

  INFRASTRUCTURE = 'infrastructure'
  GRADER_ERROR = 'grader_error'
  DEADLINE = 'deadline'
  NO_SCALE = 'no_scale'
  NOT_CREDITED = 'not_credited'
  INTERACTION_BROKEN = 'interaction_broken'
  GENERATION_FAILED = 'generation_failed'
  LEASE_EXPIRED = 'lease_expired'
  PROMPT_GONE = 'prompt_gone'

  @classmethod
  def of(cls, outcome: Outcome) -> NoReward:
    """Returns the reason for an infrastructure error."""
    return cls(outcome.value)


# What a prompt for a whole solution asks for (`envs.operators`).
OPERATORS = ('draft', 'improve', 'debug', 'crossover')
# Above every real machine and every real run, below what overflows in C.
MAX_LIMIT = 100_000_000


@dataclasses.dataclass(frozen=True)
class Limits:
  """Bounds what one contained run may use.

  output_kb: text that is kept of each stream, half head and half tail; more is
  read and cut, and a thousand times as much ends the run.
  """

  timeout_s: float = 60.0
  memory_mb: int = 2048
  pids: int = 64
  disk_mb: int = 256
  output_kb: int = 256

  def __post_init__(self):
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if not 0 < value <= MAX_LIMIT:
        raise ValueError(
          f'limits.{field.name}={value!r} must be greater than zero and at '
          f'most {MAX_LIMIT:,}.'
        )


@dataclasses.dataclass(frozen=True)
class Job:
  """One script to run in the sandbox.

  files: relative path -> text or bytes written into the fresh workspace.
  mounts: relative path in the workspace -> host directory, read-only.
  script: relative path of the Python script to run, cwd = the workspace.
  collect: relative paths to bring out after every process is dead; that one
    was not written, or is no regular file, is a fault of the script.
  optional: the same, and no fault.
  folders: those of `collect` that are folders of files; what comes out is a `.zip` of
    them, for which links and folders within are a fault of the script.
  collect_mb: MB of a path of `collect` at most, where that is more than the pool's.
  apart: standard error is returned separately, in `Execution.errors`.
  changed_mb: MB of new and changed files to bring out as well, the smallest
    first; 0 for none. Never a fault of the script.
  argv: arguments of the script.
  env: extra environment variables (never secrets of the trainer).
  zygote: starts in the pre-imported launcher, where the pool has one.
  interpreter: path of the Python that runs it, of those the pool has; '' for the one
    that runs the pool.
  gpus: GPUs of the pool that are its own while it runs.
  threads: CPUs that it may use, and the threads of numerical libraries.
  priority: the queue's order.
  """

  job_id: str
  script: str
  files: Mapping[str, str | bytes] = dataclasses.field(default_factory=dict)
  mounts: Mapping[str, pathlib.Path] = dataclasses.field(default_factory=dict)
  argv: tuple[str, ...] = ()
  collect: tuple[str, ...] = ()
  optional: tuple[str, ...] = ()
  folders: tuple[str, ...] = ()
  collect_mb: int = 0
  env: Mapping[str, str] = dataclasses.field(default_factory=dict)
  limits: Limits = Limits()
  zygote: bool = False
  interpreter: str = ''
  gpus: int = 0
  threads: int = 1
  priority: float = 0.0  # lower runs first; the pool's default is oldest first
  apart: bool = False
  changed_mb: float = 0.0


@dataclasses.dataclass(frozen=True)
class Execution:
  """Result of one job in the sandbox. `exec_s` alone feeds duration weights.

  With `Job.apart`, output is standard output alone and errors standard error.
  With `Job.changed_mb`, changed: relative path -> content of the workspace's
  files that are new or differ from `Job.files`, but for those of `collect` and
  `optional`; removed: paths of `Job.files` that are no regular file any more;
  left_out: a line each for what was not brought out.
  """

  job_id: str
  outcome: Outcome
  tier: str  # 'T3'..'T0'
  exit_code: int | None = None
  signal: int | None = None
  queue_s: float = 0.0
  startup_s: float = 0.0
  exec_s: float = 0.0
  teardown_s: float = 0.0
  cpu_s: float = 0.0
  peak_memory_mb: float = 0.0
  bytes_written: int = 0
  output: str = ''  # stdout and stderr, head and tail kept
  output_bytes: int = 0  # before truncation
  collected: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
  message: str = ''  # one line for people
  attempts: int = 1
  errors: str = ''
  changed: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
  removed: tuple[str, ...] = ()
  left_out: tuple[str, ...] = ()
  slot: int | None = None  # of the pool; None where it did not run in one
  recorded: bool = False  # not run: an equal job was (`Record.recorded`)

  def to_json(self) -> dict[str, Any]:
    """JSON-able form; files are given by size only."""
    record = dataclasses.asdict(self)
    record['outcome'] = self.outcome.value
    record['collected'] = {k: len(v) for k, v in self.collected.items()}
    record['changed'] = {k: len(v) for k, v in self.changed.items()}
    return record


@dataclasses.dataclass(frozen=True)
class Sampling:
  """Options of drawing a completion. top_p < 1 and top_k > 0 are for evaluation.

  A completion ends with the first token that completes one of the texts
  `stop`, as with a stop token: both stay among its ids.
  """

  max_new_tokens: int = 192
  temperature: float = 1.0
  top_p: float = 1.0
  top_k: int = 0
  stop_token_ids: tuple[int, ...] = ()
  stop: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Request:
  """One prompt for a rollout engine: ids in, ids out."""

  request_id: str
  prompt_ids: np.ndarray  # int32 [P]
  seed: int
  sampling: Sampling = Sampling()


@dataclasses.dataclass(frozen=True)
class Completion:
  """One sampled response. A stop token that ended it is its last token id."""

  request_id: str
  prompt_ids: np.ndarray  # int32 [P]
  token_ids: np.ndarray  # int32 [N]
  logprobs: np.ndarray  # float32 [N], under the sampler, temperature applied
  version_spans: tuple[tuple[int, int, int], ...]  # (version, start, end)
  finish_reason: str  # 'stop' | 'length' | 'abort'

  @property
  def version(self) -> int:
    """Oldest policy version among the tokens (staleness counts from it)."""
    return min((v for v, _, _ in self.version_spans), default=0)


@dataclasses.dataclass(frozen=True)
class TextCompletion:
  """The answer of a frozen role as text.

  Attributes:
    text: the answer itself.
    cost: JSON-able, what stored steps hold of it: `prompt_tokens` and `tokens` where
      they were counted, `answer_s` (seconds until it was there), `thoughts` of the
      model before it.
    rng_state: state of the random generator afterwards, where the role draws from
      one of the rollout's own; `random.Random.setstate` takes it.
  """

  text: str
  cost: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  rng_state: tuple | None = None


@dataclasses.dataclass(frozen=True)
class Prompt:
  """One item of the prompt source, drawn for one sample; the ledger counts these.

  prompt_id is unique within the run: f'{epoch}/{position}/{sample}'.
  payload is the environment's (a State for step-wise RL); not touched here.
  """

  prompt_id: str
  group_id: str
  payload: Any


def optional(default: Any) -> Any:
  """A field of a record that is left out of JSON where it has its default."""
  return dataclasses.field(default=default, metadata={'optional': True})


def optional_mapping() -> Any:
  """A field of a record that is left out of JSON where it is empty."""
  return dataclasses.field(default_factory=dict, metadata={'optional': True})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
  """Stored data of one executed response; each recipe has a subclass of its own.

  The fields here are those that metrics, summary, report and exports read of
  every recipe's records. `jaxagent.records` writes and reads them.

  KIND: names the class in files; unique.
  VERSION: of its fields, 1 or more. A file of an older one is read by `upgraded`.
  DERIVED_FROM: fields that `derive` reads.

  task: its name.
  outcome: of the execution, or of what stood in its way.
  exec_s: seconds of the execution clock.
  response: the text that the policy wrote.
  action, args, entries: what was read in it, where a response has such parts.
  valid_action: the response could be acted on.
  score_before, score_after: on the validation split; None where nothing was graded.
  measured: of a program that was handed over, {program_s, reference_s}: CPU seconds
    of each round, from which score_after follows; {} of everything else.
  diff: unified diff of the program that it changed.
  undone: the change was taken back because its run failed.
  observation: what the policy is shown of it.
  tier: of the sandbox, 'T3' to 'T0'; None where nothing was run.
  untrusted: why the reward may have been cheated; '' where it cannot have been.
  queue_s, startup_s, cpu_s: seconds in the pool's queue, of start, of CPUs.
  recorded: it was not run, an equal one was (`sandbox.recorded`, `sandbox.reuse`).
  timestamp: seconds since 1970 when it ended; None where that is not known.
  """

  KIND: ClassVar[str] = ''
  VERSION: ClassVar[int] = 1
  DERIVED_FROM: ClassVar[tuple[str, ...]] = ()

  outcome: Outcome
  task: str = ''
  exec_s: float = 0.0
  response: str = ''
  valid_action: bool = True
  score_after: float | None = None
  diff: str = ''
  observation: str = ''
  tier: str | None = None
  untrusted: str = ''
  queue_s: float = 0.0
  startup_s: float = 0.0
  cpu_s: float = 0.0
  action: str | None = optional(None)
  args: Mapping[str, Any] = optional_mapping()
  entries: Mapping[str, str] = optional_mapping()
  score_before: float | None = optional(None)
  undone: bool = optional(False)
  measured: Mapping[str, Any] = optional_mapping()
  recorded: bool = optional(False)
  timestamp: float | None = optional(None)

  @property
  def is_edit(self) -> bool:
    """Whether the response was to change the program."""
    return bool(self.diff)

  @property
  def ran(self) -> bool:
    """Whether anything was run in the sandbox."""
    return bool(self.tier)

  @property
  def compared_with(self) -> str:
    """Names the rollouts whose scores its own is compared with (`rl.window`)."""
    return self.task

  @property
  def has_reward(self) -> bool:
    """Whether it earned a reward, without switches."""
    return self.earned() is not None

  def derive(self, switches: Mapping[str, bool] = {}) -> float | NoReward:
    """Returns the reward of this record alone, or the reason why it has none.

    It is a function of the fields DERIVED_FROM; `jaxagent.audit` compares it with
    the reward that was given.

    switches: parts of the reward that the run leaves out (`config.reward`).

    Raises ValueError where the fields contradict each other.
    """
    if self.outcome.is_infrastructure:
      return NoReward.of(self.outcome)
    return NoReward.NOT_CREDITED

  def earned(self, switches: Mapping[str, bool] = {}) -> float | None:
    """Returns `derive` as a number; None where it gives a reason.

    Raises ValueError where it gives neither a finite number nor a reason.
    """
    return self.checked(self.derive(switches))

  @classmethod
  def checked(cls, reward: Any) -> float | None:
    """Returns what `derive` gave as a number; None where it is a reason.

    Raises ValueError where it is neither a finite number nor a reason.
    """
    if isinstance(reward, NoReward):
      return None
    if not isinstance(reward, numbers.Real) or not math.isfinite(reward):
      raise ValueError(
        f'{cls.__name__}.derive gives {reward!r:.80}; it must give a finite '
        'number, or a NoReward.'
      )
    return reward  # type: ignore[return-value]  # of any kind of number

  @classmethod
  def upgraded(
    cls, fields: dict[str, Any], version: int
  ) -> dict[str, Any] | None:
    """Returns the JSON fields of an older version as this one has them.

    None, the default: that version cannot be read any more.
    """
    return None


@dataclasses.dataclass(frozen=True)
class Executed:
  """Result of one execution, as an interaction gets it.

  outcome: one that `is_infrastructure` never reaches the interaction.
  state: where the next step starts; None where there is none.
  record: what the recipe's reward and traces need; None where it has neither.
  kept: JSON-able, what a stage keeps beside the record: fields of
    `records.TakenStep`.
  """

  outcome: Outcome
  exec_s: float
  state: Any = None
  message: str = ''
  record: Record | None = None
  kept: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def made(self) -> Record:
    """The record. Raises ValueError where there is none."""
    if self.record is None:
      raise ValueError(f'an execution ({self.outcome.value}) has no record.')
    return self.record


@dataclasses.dataclass(frozen=True)
class Turn:
  """One call of the policy in a row: which tokens, and what they led to.

  start, end: among the row's N response tokens.
  finish_reason: of its completion; '' where that is not known.
  """

  start: int
  end: int
  version: int
  outcome: Outcome
  reward: float
  exec_s: float
  record: Record | None = None
  finish_reason: str = ''

  @property
  def ran(self) -> bool:
    """Whether it ran anything in the sandbox."""
    return self.record is not None and self.record.ran


@dataclasses.dataclass(frozen=True)
class Sample:
  """A row to learn from: tokens, rewards and durations of its turns.

  Of several turns, version is the oldest, outcome and record the last, reward and
  exec_s the sums. Without `turns` the whole response is one.

  reward: a number always. A call without a reward has no turn: its tokens are
  observation, and a row without a turn is no sample (`interactions.rows`). Why a
  rollout had none is in `rl/rollouts.jsonl`.
  """

  prompt_id: str
  group_id: str
  prompt_ids: np.ndarray  # int32 [P]
  token_ids: np.ndarray  # int32 [N]
  loss_mask: np.ndarray  # bool [N], False on observation tokens
  behaviour_logprobs: np.ndarray  # float32 [N]
  version: int
  outcome: Outcome
  reward: float
  exec_s: float  # execution clock alone; > 0
  record: Record | None = None
  turns: tuple[Turn, ...] = ()
  later_reward: float = 0.0  # in later rows of the same interaction

  def steps(self) -> tuple[Turn, ...]:
    """Returns the turns; at least one."""
    if self.turns:
      return self.turns
    return (
      Turn(
        start=0,
        end=len(self.token_ids),
        version=self.version,
        outcome=self.outcome,
        reward=self.reward,
        exec_s=self.exec_s,
        record=self.record,
      ),
    )


@dataclasses.dataclass(frozen=True)
class Batch:
  """Static-shape rows for the learner. Rows may pack several samples.

  All arrays are [B, T]. `segment_ids` is 0 on padding, 1.. per
  sample in the row; `positions` restart at 0 in each segment. A token t is
  predicted from t-1, so per-token fields of a policy token stand at the
  token itself; the learner shifts.
  """

  tokens: np.ndarray  # int32
  positions: np.ndarray  # int32
  segment_ids: np.ndarray  # int32
  mask: np.ndarray  # float32, 1 on tokens the policy produced
  behaviour_logprobs: np.ndarray  # float32
  rewards: np.ndarray  # float32, at the last policy token of each step
  weights: np.ndarray  # float32, duration or inclusion weight of the step
  advantages: np.ndarray | None = None  # float32, where no critic is used
  n_samples: int = 0  # real (not padding) samples in the batch


@dataclasses.dataclass(frozen=True)
class Scale:
  """Scores between which a task's rewards are placed, for one variant of its data.

  m_init, m_best: of the starter and of the best known solution on the rows `valid`;
    the other two on the rows `private`. None: not measured.
  m_best_source: how m_best was found.
  agreement: rank correlation of validation and private scores among the best tenth of
    the programs that can be scripted (`tasks.agreement`); None: not measured.
  """

  m_init: float | None = None
  m_best: float | None = None
  m_init_private: float | None = None
  m_best_private: float | None = None
  m_best_source: str = ''
  agreement: float | None = None


@dataclasses.dataclass(frozen=True)
class HumanBoard:
  """Scores of a human leaderboard, and what is wrong with them.

  faults: sentences; a leaked best score or a sentinel is named here.
  """

  best: float | None = None
  median: float | None = None
  worst: float | None = None
  source: str = ''
  faults: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class TaskSource:
  """Origin of a task's data.

  kind: mlebench | mlagentbench | made.
  id: its name there. url: where to get it. rules: whose rules apply.
  """

  kind: str
  id: str
  url: str = ''
  rules: str = ''


@dataclasses.dataclass(frozen=True)
class TaskEnvironment:
  """Needs of a task's scripts beside jaxagent's own packages.

  packages: names, installed or imported by. image: of a container. interpreter: path of a Python.
  """

  packages: tuple[str, ...] = ()
  image: str = ''
  interpreter: str = ''


@dataclasses.dataclass(frozen=True)
class TaskDetails:
  """Content of `task.yaml` that version 2 has and version 1 lacks.

  papers: paper -> train | evaluate | both.
  id_column, targets: columns of answers and submission; '' and () where the grader
    has them or there are none.
  submission_format: csv | jsonl | npy | npz | zip | folder | py; the last is a program,
    which is run.
  submission_mb: MB of a submission at most, unpacked where it is an archive.
  sample: path of the sample submission in the public data; '' for the usual name.
  answers: of one of MLAgentBench's folders the path of the answers in it, whose rows are
    divided; else ''.
  gpus: GPUs of one execution.
  licence: of the data. full_mb, standin_mb: MB of the data, 0 where not known.
  leaks: what of the published data gives the answers away, and is removed; '' for none.
  packages: folders of packages of whose files a stand-in can be made.
  variants: variant of the data -> scale.
  """

  source: TaskSource
  papers: dict[str, str] = dataclasses.field(default_factory=dict)
  id_column: str = ''
  targets: tuple[str, ...] = ()
  submission_format: str = 'csv'
  submission_mb: float = 64.0
  sample: str = ''
  answers: str = ''
  gpus: int = 0
  environment: TaskEnvironment = TaskEnvironment()
  licence: str = ''
  full_mb: float = 0.0
  standin_mb: float = 0.0
  leaks: str = ''
  packages: tuple[str, ...] = ()
  variants: dict[str, Scale] = dataclasses.field(default_factory=dict)
  board: HumanBoard | None = None

  @property
  def is_program(self) -> bool:
    """Whether what is handed over is a program, measured in a second job."""
    return self.submission_format == 'py'

  @property
  def is_folder(self) -> bool:
    """Whether what is handed over is a folder of files."""
    return self.submission_format == 'folder'

  @property
  def suffix(self) -> str:
    """Ending of the file that is graded: `.zip` of a folder."""
    return '.zip' if self.is_folder else f'.{self.submission_format}'


@dataclasses.dataclass(frozen=True)
class TaskSpec:
  """One task folder, read and checked.

  layout: 'jaxagent', with a `task.yaml`; 'mlagentbench', without: what it does
    not tell of modality and kind is ''.
  details: what version 2 of `task.yaml` adds; None in version 1, and of one of
    MLAgentBench's folders whose rows are not divided.
  agreement: of `Scale`.
  variant: of the data that the scores are for: standin | packages | mlebench | raw; ''
    in version 1, whose data has one variant.
  """

  name: str
  root: pathlib.Path
  modality: str  # of envs/specs/task_yaml.py: ALL_MODALITIES, or ''
  kind: str  # of envs/specs/task_yaml.py: ALL_KINDS, or ''
  metric: str
  higher_is_better: bool
  m_init: float | None
  m_best: float | None
  m_best_source: str
  split: str  # heldin | heldout
  limits: Limits
  research_problem: str = ''
  read_only_files: tuple[str, ...] = ()
  submission: str = 'submission.csv'
  m_best_private: float | None = None  # the best known solution, private rows
  hides: tuple[str, ...] = ()  # folders of packages that hold the labels
  exposed: str = ''  # how a script can read the labels all the same
  layout: str = 'jaxagent'
  details: TaskDetails | None = None
  variant: str = ''
  agreement: float | None = None

  @property
  def version(self) -> int:
    """Version of its `task.yaml`; of a folder without, 2 where its rows are divided."""
    return 1 if self.details is None else 2

  @property
  def submission_file(self) -> str:
    """Name of the file that a submission is kept in: of a folder a `.zip`."""
    is_folder = self.details is not None and self.details.is_folder
    return f'{self.submission}.zip' if is_folder else self.submission

  @property
  def is_standin(self) -> bool:
    """Whether its data took the place of published data."""
    return self.variant in ('standin', 'packages')

  @property
  def has_scale(self) -> bool:
    """Whether a reward can be placed between starter and best known score."""
    return self.m_init is not None and self.m_best is not None

  @property
  def alpha(self) -> float:
    """Paper 000, equation 6: 100 / (m_best - m_init); negative if lower wins."""
    if self.m_init is None or self.m_best is None:
      raise ValueError(
        f'task {self.name}: m_init={self.m_init} and m_best={self.m_best} '
        'must both be numbers; run `python -m jaxagent.tasks prepare '
        f'{self.name}` to measure the baseline.'
      )
    if self.m_best == self.m_init:
      raise ValueError(
        f'task {self.name}: m_best equals m_init ({self.m_init}).'
      )
    return 100.0 / (self.m_best - self.m_init)


@dataclasses.dataclass(frozen=True)
class Blob:
  """A file that is no text, by its content; the bytes are kept elsewhere."""

  digest: str
  size: int  # bytes


@dataclasses.dataclass(frozen=True)
class PastStep:
  """One earlier step, as later prompts tell of it.

  action: its name; '' where the response had none.
  result: one line, outcome and score.
  response: the whole response as it was written.
  """

  action: str
  result: str
  response: str = ''
  observation: str = ''


@dataclasses.dataclass(frozen=True)
class State:
  """State from which a step starts: a script, its score, and the steps before.

  files: relative path -> content of the workspace, the task's data left out.
  history: the last steps, newest last.
  """

  state_id: str  # content hash
  task: str
  files: Mapping[str, str | Blob]
  score: float | None  # m_t
  start_score: float | None  # m_init measured
  last_outcome: str = ''
  history: tuple[PastStep, ...] = ()
  ideas: tuple[str, ...] = ()
  step: int = 0
  script: str = 'train.py'  # the file that `score` belongs to
