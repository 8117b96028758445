"""Measures m_init (the starter) and m_best (a search over pipelines).

Of a task of version 2 m_best is the reference solution's, and the scores belong to
the variant of the data that was prepared. Both are on the valid split, the scale of the reward (paper 000, equation 6);
the same scripts' scores on the private split are kept beside them. Runs the
task folders' own scripts only, which are trusted, in worker processes with the
hash seed and the CPU level of the sandbox's jobs.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import itertools
import json
import multiprocessing
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from jaxagent.envs import execution, workspace
from jaxagent.envs.grading import Grader
from jaxagent.envs.specs import interpreters, task_data
from jaxagent.envs.specs.task_yaml2 import REFERENCE
from jaxagent.envs.tasks import PreparedTask, is_divided
from jaxagent.graders import folders
from jaxagent.sandbox import cpu_levels
from jaxagent.tasks import candidates
from jaxagent.types import Execution, Job, Scale, TaskSpec

_VARIANTS = re.compile(r'^variants:.*\n(?:[ \t].*\n)*', re.M)
_PLAIN = re.compile(r'[\w./ -]*')  # a text without quotes
_MODEL = re.compile(
  r'^model = make_pipeline\(.*?\)$(?=\nmodel\.fit)', re.M | re.S
)


@dataclasses.dataclass(frozen=True)
class Measured:
  """One script's scores. pipeline is '' for the starter itself, REFERENCE for
  the reference solution."""

  pipeline: str
  valid: float
  private: float
  wall_s: float
  cpu_s: float = 0.0  # of all its threads; 0 where it was not measured


def run_script(
  job: tuple[str, str, float, str, str],
  files: Mapping[str, str] = MappingProxyType({}),
) -> tuple[bytes | None, float, float, str]:
  """(submission or None, wall seconds, CPU seconds, last words) of a trusted script.

  Args:
    job: text, folder mounted as `data/`, limit in seconds, name of the
      submission, interpreter of the task's own or ''. Runs in the calling process,
      which is a worker of `measure` and does nothing else, or with that interpreter.
    files: relative path -> text of what lies beside the script, where it can import.
  """
  text, public_dir, timeout_s, submission, python = job
  with tempfile.TemporaryDirectory(prefix='jaxagent-measure-') as folder:
    home = pathlib.Path(folder)
    for name, content in {**files, 'train.py': text}.items():
      (home / name).parent.mkdir(parents=True, exist_ok=True)
      (home / name).write_text(content, 'utf-8')
    (home / 'data').symlink_to(public_dir)
    before = os.getcwd()
    os.chdir(home)
    signal.signal(signal.SIGALRM, _late)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    start, cpu = time.monotonic(), _cpu_s()
    try:
      if python:
        subprocess.run(
          [python, '-s', 'train.py'],
          check=True,
          capture_output=True,
          text=True,
        )
      else:
        _run_here(text, folder)
      data = _handed_over(home / submission)
      return data, time.monotonic() - start, _cpu_s() - cpu, ''
    except Exception as error:  # a candidate may not fit the data
      said = getattr(error, 'stderr', '') or f'{type(error).__name__}: {error}'
      words = said.splitlines()[-1 if python else 0]
      return None, time.monotonic() - start, _cpu_s() - cpu, words
    finally:
      signal.setitimer(signal.ITIMER_REAL, 0)
      os.chdir(before)


def _run_here(text: str, folder: str) -> None:
  """Runs a script that lies in a folder as `python train.py` would there."""
  before = set(sys.modules)
  sys.path.insert(0, folder)
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')
      exec(compile(text, 'train.py', 'exec'), {'__name__': '__main__'})
  except SystemExit as left:
    if left.code:
      raise RuntimeError(f'it exited with {left.code}') from left
  finally:
    sys.path.remove(folder)
    # What one script imports from its folder is not the next one's.
    for name in set(sys.modules) - before:
      place = getattr(sys.modules[name], '__file__', None) or ''
      if place.startswith(folder + os.sep):
        del sys.modules[name]


def _handed_over(path: pathlib.Path) -> bytes:
  """Reads a submission: a file, or a folder of files as a `.zip`."""
  return folders.pack(path) if path.is_dir() else path.read_bytes()


def _cpu_s() -> float:
  """CPU seconds of this process and of those that it has waited for."""
  of_children = resource.getrusage(resource.RUSAGE_CHILDREN)
  return time.process_time() + of_children.ru_utime + of_children.ru_stime


def _late(signum, frame):
  raise TimeoutError('longer than the limit')


def _prepare_worker() -> None:
  """Imports once what every script imports; one thread a worker."""
  os.environ.update(OMP_NUM_THREADS='1', OPENBLAS_NUM_THREADS='1')
  import pandas  # noqa: F401

  exec(candidates.IMPORTS, {})


@contextlib.contextmanager
def _as_jobs(gpus: Sequence[str]) -> Iterator[None]:
  """Has processes that are started meanwhile compute as the sandbox's jobs.

  gpus: those that they see.
  """
  before = dict(os.environ)
  os.environ.update(PYTHONHASHSEED='0', **cpu_levels.here())
  os.environ['CUDA_VISIBLE_DEVICES'] = ','.join(gpus)
  try:
    yield
  finally:
    os.environ.clear()
    os.environ.update(before)


def with_pipeline(starter: str, steps: str) -> str:
  """The starter with another pipeline. Raises ValueError where it has none."""
  found = _MODEL.search(starter)
  if not found:
    raise ValueError(
      'train.py has no `model = make_pipeline(...)` directly followed by '
      '`model.fit(...)`; the search needs that convention.'
    )
  head, tail = starter[: found.start()], starter[found.end() :]
  return f'{candidates.IMPORTS}\n{head}model = make_pipeline({steps}){tail}'


def _others(
  spec: TaskSpec, starter: str, search: bool
) -> list[tuple[str, str]]:
  """(name, text) of the scripts that are measured beside the starter."""
  if spec.version == 1:
    steps_of = candidates.pipelines(spec.modality, spec.kind) if search else ()
    return [(steps, with_pipeline(starter, steps)) for steps in steps_of]
  if search:
    raise ValueError(
      f'task {spec.name}: --search tries pipelines on tasks of version 1; the '
      f'best known solution of this one is {REFERENCE}.'
    )
  path = spec.root / REFERENCE
  return [(REFERENCE, path.read_text('utf-8'))] if path.is_file() else []


def measure(
  prepared: PreparedTask,
  grader: Grader,
  *,
  search: bool = False,
  workers: int = 2,
  gpus: Sequence[str] = (),
  log=print,
) -> list[Measured]:
  """Starter first, then the candidates, best first.

  gpus: as of `measured`.

  Raises:
    ValueError: the starter fails or is refused by the grader.
  """
  spec = prepared.spec
  starter = prepared.starter_files['train.py']
  assert isinstance(starter, str)  # a file that is no text is no script
  jobs = [('', starter), *_others(spec, starter, search)]
  out = []
  for steps, found in measured(
    prepared, grader, jobs, workers=workers, gpus=gpus
  ):
    if isinstance(found, Measured):
      out.append(found)
    elif not steps:
      raise ValueError(f'task {spec.name}: the starter fails: {found}')
    else:
      log(f'  {spec.name}: left out {steps}: {found}')
  return out[:1] + sorted(
    out[1:], key=lambda m: m.valid, reverse=spec.higher_is_better
  )


def measured(
  prepared: PreparedTask,
  grader: Grader,
  scripts: Sequence[tuple[str, str]],
  *,
  workers: int = 2,
  gpus: Sequence[str] = (),
) -> Iterator[tuple[str, Measured | str]]:
  """Yields the name of each of the (name, text), and its scores or why it has none.

  gpus: by number; a script sees as many as its task asks for, one script at a time.
  """
  spec = prepared.spec
  own = gpus[: spec.details.gpus if spec.details else 0]
  if own:
    workers = 1
  with (
    _as_jobs(own),
    concurrent.futures.ProcessPoolExecutor(
      workers,
      mp_context=multiprocessing.get_context('spawn'),
      initializer=_prepare_worker,
    ) as pool,
  ):
    limit, python = spec.limits.timeout_s, interpreters.own(spec)
    beside = {
      name: given
      for name, given in prepared.starter_files.items()
      if isinstance(given, str) and not workspace.is_at(name, prepared.mounts)
    }
    runs = pool.map(
      run_script,
      [
        (text, str(prepared.public_dir), limit, spec.submission, python)
        for _, text in scripts
      ],
      itertools.repeat(beside),
    )
    for (name, _), (data, *seconds, words) in zip(scripts, runs, strict=True):
      found: Measured | str = words
      if data is not None:
        valid = grader.grade(spec.name, data, 'valid')
        private = grader.grade(spec.name, data, 'private')
        found = valid.reason or private.reason
        if valid.score is not None and private.score is not None:
          found = Measured(name, valid.score, private.score, *seconds)
      yield name, found


class _Pool:
  """Runs each job at once, as `run` does."""

  def __init__(self, run: Callable[[Job], Execution]):
    self._run = run

  def submit(self, job: Job) -> concurrent.futures.Future[Execution]:
    done: concurrent.futures.Future[Execution] = concurrent.futures.Future()
    done.set_result(self._run(job))
    return done


def folders_starter(
  prepared: PreparedTask, grader: Grader, run: Callable[[Job], Execution]
) -> Measured:
  """Measures the starter of one of MLAgentBench's folders, as a run begins with it.

  Its rows are divided; its files are laid out and not only shown.

  Raises:
    ValueError: the starter gives no score on one of the halves.
  """
  spec = prepared.spec
  runner = execution.ScriptRunner({spec.name: prepared}, _Pool(run), grader)
  laid_out = workspace.laid_out(
    runner.starter(spec.name), prepared.mounts, spec.submission
  )
  done = runner.run_script(spec.name, laid_out, 'train.py')
  why, private = done.message, None
  if done.score is not None:
    data = done.execution.collected[spec.submission]
    got = grader.grade(spec.name, data, 'private')
    why, private = got.reason, got.score
  if done.score is None or private is None:
    raise ValueError(
      f'task {spec.name}: the starter gives no score: {done.outcome.value}: '
      f'{execution.reason_of(why, done.execution)}'
    )
  ran = done.execution
  return Measured('', done.score, private, ran.exec_s, ran.cpu_s)


def _shown(value: float | str) -> str:
  """Returns a value as YAML has it, to which 1e-05 is a text and 1.0e-05 a number."""
  if not isinstance(value, float):
    return value
  text = repr(round(value, 6))
  return text if '.' in text else text.replace('e', '.0e')


def update_yaml(path: pathlib.Path, values: dict[str, float | str]) -> None:
  """Replaces or appends single-line keys, keeping comments and order."""
  text = path.read_text(encoding='utf-8')
  for key, value in values.items():
    line = f'{key}: {_shown(value)}'
    text, count = re.subn(
      rf'^{key}:.*$', line.replace('\\', r'\\'), text, flags=re.M
    )
    if not count:
      text = text.rstrip('\n') + f'\n{line}\n'
  path.write_text(text, encoding='utf-8')


def record(prepared: PreparedTask, results: list[Measured]) -> None:
  """Writes m_init, and m_best where there was a search, to task.yaml.

  Scores of published data are kept beside the data, for no one else has it; m_init of
  one of MLAgentBench's folders stands in the file beside it.
  """
  if is_divided(prepared.spec):
    root = prepared.spec.root
    path = root.with_name(f'{root.name}.yaml')
    return update_yaml(path, {'m_init': results[0].valid})
  if prepared.spec.version == 2:
    return _record_variant(prepared, results)
  starter, rest = results[0], results[1:]
  values: dict[str, float | str] = {
    'm_init': starter.valid,
    'm_init_private': starter.private,
  }
  if rest:
    best = rest[0]
    steps = best.pipeline.replace("'", "''")
    values.update(
      m_best=best.valid,
      m_best_private=best.private,
      m_best_source=(
        f"'best on the valid split of {len(rest)} scikit-learn pipelines "
        f"(jaxagent/tasks/candidates.py): {steps}'"
      ),
    )
  update_yaml(prepared.spec.root / 'task.yaml', values)


def _record_variant(prepared: PreparedTask, results: list[Measured]) -> None:
  """Keeps the scores of one variant of a task of version 2."""
  starter, rest = results[0], results[1:]
  known = prepared.spec.agreement
  scale = Scale(starter.valid, m_init_private=starter.private, agreement=known)
  if rest:
    scale = Scale(
      starter.valid,
      rest[0].valid,
      starter.private,
      rest[0].private,
      rest[0].pipeline,
      known,
    )
  write_scale(prepared, scale)


def write_scale(prepared: PreparedTask, scale: Scale) -> None:
  """Keeps a scale of a task of version 2: in task.yaml, or beside published data."""
  spec = prepared.spec
  if spec.variant != 'standin':
    return task_data.write_scale(prepared.public_dir.parent, scale)
  path = spec.root / 'task.yaml'
  lines = ['variants:', '  standin:']
  values = dataclasses.asdict(scale)
  if scale.agreement is None:
    del values['agreement']
  for key, value in values.items():
    shown = 'null' if value is None else _shown(value)
    if isinstance(value, str) and not _PLAIN.fullmatch(value):
      shown = json.dumps(
        value, ensure_ascii=False
      )  # in quotes, as YAML reads, too
    lines.append(f'    {key}: {shown}'.rstrip())
  block = '\n'.join(lines) + '\n'
  text = path.read_text('utf-8').rstrip('\n') + '\n'
  found = _VARIANTS.search(text)
  if found:
    text = text[: found.start()] + block + text[found.end() :]
  else:
    text += block
  path.write_text(text, 'utf-8')
