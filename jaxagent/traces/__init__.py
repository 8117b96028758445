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
  ran,
  read,
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
  'ran',
  'read',
  'write',
  'write_folder',
]
