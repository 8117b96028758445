"""Slots: what a plan says is in the cache is in the cache."""

import numpy as np
import pytest

from jaxagent.rollout.engines.slots import Slots


class Model:
  """Slots beside a list of texts that does what plans say."""

  def __init__(self, n, columns):
    self.slots, self.cache = Slots(n, columns), [() for _ in range(n)]

  def seat(self, prompts):
    plans = self.slots.seat([np.array(p, np.int32) for p in prompts])
    copies = [p for p in plans if p.source is not None and not p.after]
    old = [self.cache[p.source][: p.kept] for p in copies]
    for plan, text in zip(copies, old):
      self.cache[plan.slot] = text
    for plan, prompt in zip(plans, prompts):
      if plan.after:
        continue
      if plan.source is None:
        self.cache[plan.slot] = ()
      assert self.cache[plan.slot] == tuple(prompt[: plan.kept])
      self.cache[plan.slot] = tuple(prompt[:-1])
    for plan, prompt in zip(plans, prompts):
      if plan.after:
        self.cache[plan.slot] = self.cache[plan.source][: plan.kept]
      assert self.cache[plan.slot] == tuple(prompt[:-1])
    return plans

  def write(self, slot, tokens):
    self.slots.write(slot, np.array(tokens, np.int32))
    self.cache[slot] += tuple(tokens)


@pytest.mark.parametrize('seed', range(8))
def test_any_traffic(seed):
  rng = np.random.default_rng(seed)
  model = Model(8, 96)
  texts = {}
  for _ in range(200):
    prompts = []
    for _ in range(rng.integers(0, model.slots.free + 1)):
      kind = rng.integers(4)
      if kind == 0 and prompts:
        prompts.append(prompts[-1])
      elif kind == 1 and texts:
        old = texts[rng.choice(list(texts))]
        prompts.append((*old, *rng.integers(0, 3, rng.integers(1, 5)))[:60])
      else:
        # Few letters, so that beginnings are shared by chance, too.
        prompts.append(tuple(rng.integers(0, 2, rng.integers(1, 40))))
    for plan, prompt in zip(model.seat(prompts), prompts):
      texts[plan.slot] = tuple(prompt)
    for slot in np.flatnonzero(model.slots.taken):
      drawn = tuple(rng.integers(0, 3, rng.integers(0, 6)))
      if drawn:
        model.write(slot, (texts[slot][-1], *drawn[:-1]))
        texts[slot] += drawn
      if rng.random() < 0.4 or len(texts[slot]) > 80:
        model.slots.leave(slot)
    if rng.random() < 0.1:
      model.slots.forget()
    for slot in range(8):
      held = model.slots.held[slot]
      assert tuple(model.slots.text[slot, :held]) == model.cache[slot]


def test_samples_of_a_prompt_are_prefilled_once():
  slots = Slots(4, 64)
  plans = slots.seat([np.arange(20)] * 3)
  assert [p.source for p in plans] == [None, 0, 0]
  assert [p.after for p in plans] == [False, True, True]


def test_new_weights_make_every_text_useless():
  slots = Slots(2, 64)
  slots.seat([np.arange(30)])
  slots.leave(0)
  slots.forget()
  assert slots.seat([np.arange(40)])[0].source is None


def test_the_next_turn_stays_where_the_last_one_was():
  slots = Slots(4, 64)
  slots.seat([np.arange(20), np.arange(5)])
  slots.write(0, np.array([19, 7, 8]))
  slots.leave(0)
  turn = np.array([*range(20), 7, 8, 50, 51])
  (plan,) = slots.seat([turn])
  assert (plan.slot, plan.source, plan.kept) == (0, 0, 22)
