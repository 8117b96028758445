"""Stands for a language model: gives answers that were written beforehand."""

from __future__ import annotations

from collections.abc import Sequence


class FixedTextModel:
  """Gives `answers` in turn, the last one for ever.

  An exception among the answers is raised. `asked` and `seeds` keep the
  messages and the seed of each call.
  """

  name = 'fixed_text_model'
  is_stand_in = True

  def __init__(self, answers: Sequence[str | Exception]):
    self.answers = list(answers)
    self.asked: list[list[dict[str, str]]] = []
    self.seeds: list[int | None] = []

  def complete(
    self,
    messages: Sequence[dict[str, str]],
    *,
    max_tokens: int = 1024,
    temperature: float = 0.0,
    stop: Sequence[str] = (),
    seed: int | None = None,
  ) -> str:
    answer = self.answers[min(len(self.asked), len(self.answers) - 1)]
    self.asked.append([dict(m) for m in messages])
    self.seeds.append(seed)
    if isinstance(answer, Exception):
      raise answer
    return answer
