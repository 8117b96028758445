"""`python -m jaxagent.compiled`: what `jaxagent.plan --target` starts, a process whose
environment is the target's."""

from __future__ import annotations

import sys

from jaxagent.compiled import command

if __name__ == '__main__':
  sys.exit(command.main(sys.argv[1:]))
