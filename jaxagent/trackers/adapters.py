"""The trackers, each behind the same five methods. Libraries are imported on use."""

from __future__ import annotations

import os
import pathlib
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

PROJECT = 'jaxagent'
Rows = Sequence[Sequence[Any]]


class Tracker(Protocol):
  """A run in a tracker, begun by its class.

  run_id: by which the tracker continues it.
  told: a line for each thing that was changed, such as a name that it refuses.
  """

  run_id: str
  told: list[str]

  def log(self, step: int, time_s: float, metrics: Mapping[str, float]) -> None:
    """Logs the metrics of a step."""
    ...

  def table(
    self, name: str, step: int, columns: Sequence[str], rows: Rows
  ) -> None:
    """Logs a table of texts and numbers."""
    ...

  def artifact(self, name: str, path: pathlib.Path) -> None:
    """Keeps a file with the run."""
    ...

  def close(self) -> None:
    """Ends what was begun; writes all."""
    ...


class Wandb:
  """A run of Weights & Biases; offline unless WANDB_MODE says else."""

  def __init__(
    self,
    folder: pathlib.Path,
    name: str,
    run_id: str,
    config: Mapping[str, Any],
  ):
    os.environ.setdefault('WANDB_MODE', 'offline')
    import wandb

    self._wandb, self.run_id = wandb, run_id
    self.told: list[str] = []
    self._run = wandb.init(
      project=os.environ.get('WANDB_PROJECT', PROJECT),
      dir=str(folder),
      id=run_id,
      name=name,
      resume='allow',
      config=dict(config),
      settings=wandb.Settings(
        silent=True, console='off', x_disable_stats=True, init_timeout=60
      ),
    )

  def log(self, step: int, time_s: float, metrics: Mapping[str, float]) -> None:
    self._run.log(dict(metrics), step=step)

  def table(
    self, name: str, step: int, columns: Sequence[str], rows: Rows
  ) -> None:
    made = self._wandb.Table(
      columns=list(columns), data=[list(row) for row in rows]
    )
    self._run.log({name: made}, step=step)

  def artifact(self, name: str, path: pathlib.Path) -> None:
    made = self._wandb.Artifact(f'{name}-{self.run_id}', type='report')
    made.add_file(str(path))
    self._run.log_artifact(made)

  def close(self) -> None:
    self._run.finish()


class Trackio:
  """A run of Trackio, kept in the run's folder unless TRACKIO_DIR says else."""

  def __init__(
    self,
    folder: pathlib.Path,
    name: str,
    run_id: str,
    config: Mapping[str, Any],
  ):
    os.environ.setdefault('TRACKIO_DIR', str(folder / 'store'))
    import trackio

    self._trackio, self.run_id = trackio, run_id
    self.told: list[str] = []
    # Its keys that begin with '_' are its own.
    self._run = trackio.init(
      project=os.environ.get('TRACKIO_PROJECT', PROJECT),
      name=f'{name}-{run_id}',
      config={k: v for k, v in config.items() if not k.startswith('_')},
      resume='allow',
      embed=False,
      auto_log_gpu=False,
      auto_log_cpu=False,
    )

  def log(self, step: int, time_s: float, metrics: Mapping[str, float]) -> None:
    self._trackio.log(dict(metrics), step=step)

  def table(
    self, name: str, step: int, columns: Sequence[str], rows: Rows
  ) -> None:
    made = self._trackio.Table(
      columns=list(columns),
      data=[list(row) for row in rows],
      allow_mixed_types=True,
    )
    self._trackio.log({name: made}, step=step)

  def artifact(self, name: str, path: pathlib.Path) -> None:
    self._trackio.log_artifact(
      path, name=f'{name}-{self.run_id}', type='report'
    )

  def close(self) -> None:
    self._trackio.finish()


class MLflow:
  """A run of MLflow, kept in the run's folder unless MLFLOW_TRACKING_URI says else."""

  _REFUSED = re.compile(r'[^\w\-. :/]')
  _MOST_CHARS = 250

  def __init__(
    self,
    folder: pathlib.Path,
    name: str,
    run_id: str,
    config: Mapping[str, Any],
  ):
    import mlflow
    from mlflow import entities

    self._entities = entities
    self.told: list[str] = []
    self._client = client = mlflow.MlflowClient(
      os.environ.get('MLFLOW_TRACKING_URI')
      or f'sqlite:///{folder / "mlflow.db"}'
    )
    project = os.environ.get('MLFLOW_EXPERIMENT_NAME', PROJECT)
    found = client.get_experiment_by_name(project)
    experiment = (
      found.experiment_id
      if found
      else client.create_experiment(
        project, artifact_location=(folder / 'artifacts').as_uri()
      )
    )
    tag = 'jaxagent.run'
    known = client.search_runs([experiment], f"tags.`{tag}` = '{run_id}'")
    self._new = not known
    self._run = (
      known[0]
      if known
      else client.create_run(experiment, tags={tag: run_id}, run_name=name)
    ).info.run_id
    self.run_id = run_id
    if self._new:
      client.log_dict(self._run, dict(config), 'config.json')

  def log(self, step: int, time_s: float, metrics: Mapping[str, float]) -> None:
    made = [
      self._entities.Metric(self._name(key), value, int(time_s * 1000), step)
      for key, value in metrics.items()
    ]
    for begin in range(0, len(made), 1000):  # its limit
      self._client.log_batch(self._run, metrics=made[begin : begin + 1000])

  def _name(self, name: str) -> str:
    """Returns a name that MLflow admits; says once that it is another."""
    parts = self._REFUSED.sub('_', name)[: self._MOST_CHARS].split('/')
    admitted = '/'.join(p for p in parts if p not in ('', '.', '..')) or '_'
    if admitted != name:
      line = f'metric {name} is {admitted} there: it refuses the name'
      if line not in self.told:
        self.told.append(line)
    return admitted

  def table(
    self, name: str, step: int, columns: Sequence[str], rows: Rows
  ) -> None:
    self._client.log_dict(
      self._run,
      {'columns': list(columns), 'data': [list(row) for row in rows]},
      f'{name}.json',
    )

  def artifact(self, name: str, path: pathlib.Path) -> None:
    self._client.log_artifact(self._run, str(path))

  def close(self) -> None:
    self._client.set_terminated(self._run, end_time=int(time.time() * 1000))


TRACKERS: dict[str, type[Any]] = {
  'wandb': Wandb,
  'trackio': Trackio,
  'mlflow': MLflow,
}
