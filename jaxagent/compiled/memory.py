"""Bytes that a compiled program takes of a device, as its compiler reserves them."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import tempfile
from typing import Any

_TOTAL = re.compile(r'\(color=0\)\s+Total bytes: (\d+)')


@dataclasses.dataclass(frozen=True)
class Memory:
  """Bytes of one device; results that take the place of arguments are left out."""

  arguments: int
  results: int
  temporaries: int

  @property
  def total(self) -> int:
    """Bytes that the device must have while the program runs."""
    return self.arguments + self.results + self.temporaries


def compiled(lowered: Any, platform: str) -> tuple[Any, Memory]:
  """Compiles a lowered program; returns it with its memory.

  For TPUs `memory_analysis` says too much (`findings/libtpu_memory_analysis.sh`), so
  the compiler's report of what it assigns is read instead. A compiler that writes none
  leaves the analysis, which is then an upper bound.
  """
  if platform != 'tpu':
    program = lowered.compile()
    return program, analysed(program)
  with tempfile.TemporaryDirectory() as folder:
    program = lowered.compile(compiler_options={'xla_dump_to': folder})
    total = reported(pathlib.Path(folder))
  found = analysed(program)
  if total is None:
    return program, found
  rest = max(0, total - found.arguments - found.results)
  return program, dataclasses.replace(found, temporaries=rest)


def analysed(program: Any) -> Memory:
  """Returns the memory as `memory_analysis` has it."""
  memory = program.memory_analysis()
  return Memory(
    memory.argument_size_in_bytes,
    memory.output_size_in_bytes - memory.alias_size_in_bytes,
    memory.temp_size_in_bytes,
  )


def reported(folder: pathlib.Path) -> int | None:
  """Returns the bytes of HBM in the folder's one report, or None without a report."""
  for path in folder.rglob('*memory-usage-report.txt'):
    if found := _TOTAL.search(path.read_text(errors='replace')):
      return int(found[1])
  return None
