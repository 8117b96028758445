"""Trajectories as MLAgentBench keeps them: traces, and folders of a run."""

from jaxagent.traces.folders import WORKSPACES, write_folder
from jaxagent.traces.form import (
  FILE,
  NOT_RECORDED,
  action_infos,
  action_of,
  check,
  entries_of,
  mlagentbench_trace,
  name_of,
  ran,
  read,
  steps_of,
  write,
)

__all__ = [
  'FILE',
  'NOT_RECORDED',
  'WORKSPACES',
  'action_infos',
  'action_of',
  'check',
  'entries_of',
  'mlagentbench_trace',
  'name_of',
  'ran',
  'read',
  'steps_of',
  'write',
  'write_folder',
]
