"""A virtual environment beside the trainer's, with a package of its own."""

import pathlib
import venv


def second_environment(home: pathlib.Path) -> str:
  """Makes one in `home` and returns its interpreter; `only_there` can be imported."""
  venv.create(home, symlinks=True, with_pip=False)
  (packages,) = home.glob('lib/python3*/site-packages')
  (packages / 'only_there.py').write_text('NAME = "second"\n')
  return str(home / 'bin/python')
