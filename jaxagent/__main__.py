"""`python -m jaxagent VERB ...` is the command `jaxagent VERB ...`, where it is not on PATH."""

import sys

from jaxagent.cli import main

if __name__ == '__main__':
  sys.exit(main())
