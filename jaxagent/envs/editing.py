"""Requests to the editor, and who is charged for a failure."""

from __future__ import annotations

import logging
import threading

from jaxagent.envs.interfaces import Editor, EditRefused, TextModelError
from jaxagent.envs.workspace import ActionFailed

MAX_INSTRUCTION_CHARS = 4000

_log = logging.getLogger(__name__)


class AskedEditor:
  """An editor whose refusals and faults are sorted; thread-safe."""

  def __init__(self, editor: Editor):
    self.editor = editor
    self._lock = threading.Lock()
    self._faults: set[tuple[str, str, int]] = set()

  def edited(self, text: str, instruction: str) -> str:
    """Returns the editor's answer; the one place where the environment asks it.

    A scripted stand-in is a function of text that the policy chose, so an error
    inside it counts as its refusal, charged to the policy: as an infrastructure error
    it would be tried again in vain, and then be hidden with the prompt that was
    quarantined. It is logged, once for each place. An error around a real model
    does not depend on the instruction and is an infrastructure error.

    Raises ActionFailed for a refusal, TextModelError where no answer came.
    """
    if len(instruction) > MAX_INSTRUCTION_CHARS:
      raise ActionFailed(
        f'an instruction has at most {MAX_INSTRUCTION_CHARS} characters.'
      )
    try:
      return self.editor.edit(text, instruction)
    except EditRefused as error:
      reason = ' '.join(error.reason.split())
      raise ActionFailed(f'the edit was refused: {reason}.') from error
    except TextModelError:
      raise
    except Exception as error:
      self._report(error)
      reason = f'the editor failed ({type(error).__name__})'
      if not self.editor.is_stand_in:
        raise TextModelError(reason) from error
      raise ActionFailed(f'the edit was refused: {reason}.') from error

  def _report(self, error: Exception) -> None:
    """Logs a fault of the editor, the first time that its place has one."""
    place = error.__traceback__
    assert place is not None  # it was raised
    while place.tb_next is not None:
      place = place.tb_next
    key = (
      type(error).__name__,
      place.tb_frame.f_code.co_filename,
      place.tb_lineno,
    )
    with self._lock:
      if key in self._faults:
        return
      self._faults.add(key)
    _log.warning(
      'a fault inside the editor %s; the next ones of this place are not '
      'logged.',
      self.editor.name,
      exc_info=error,
    )
