"""Programs of this suite, which are our own, run in a folder of their own."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import sys
import tempfile

KEY = b'0123456789abcdef'


@dataclasses.dataclass(frozen=True)
class Done:
  """code, output: of the process. files: what it left, but for marks."""

  code: int
  output: str
  files: dict[str, bytes]
  marks: dict[str, bytes]

  def left(self, made) -> bytes | None:
    return self.marks.get(made.collect)


def run(code: str, files=None, timeout_s: float = 60.0) -> Done:
  """Runs `train.py` with `files` beside it."""
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    (folder / 'train.py').write_text(code, encoding='utf-8', newline='')
    for path, content in (files or {}).items():
      data = content if isinstance(content, bytes) else content.encode()
      (folder / path).write_bytes(data)
    done = subprocess.run(
      [sys.executable, 'train.py'],
      cwd=folder,
      stdin=subprocess.DEVNULL,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      timeout=timeout_s,
    )
    left = {
      str(p.relative_to(folder)): p.read_bytes()
      for p in sorted(folder.rglob('*'))
      if p.is_file() and '__pycache__' not in p.parts
    }
  own = {'train.py', *(files or {})}
  marked = {k: v for k, v in left.items() if k.endswith('.marks')}
  rest = {k: v for k, v in left.items() if k not in own and k not in marked}
  return Done(
    done.returncode, done.stdout.replace(f'{folder}/', ''), rest, marked
  )
