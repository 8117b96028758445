"""Expert stand-in: acts on purpose no better than a mediocre engineer.

Its trajectories teach the response format and a wide choice of edits; how
good the edits are is left for reinforcement learning to find out.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from jaxagent import types
from jaxagent.envs import agents, workspace
from jaxagent.envs.model_line import step_names
from jaxagent.stand_ins import moves

_REFLECTION = {
  'ok': (
    'The script runs and scores {score}.',
    'The last run gave {score}.',
    'Score {score} so far.',
  ),
  'other': (
    'The last step failed: {last}.',
    'The last step ended with {last}.',
  ),
}
_PLAN = (
  'Improve {metric} step by step.',
  'Tune the pipeline for {metric}.',
  'Try models and features for {metric}.',
  'Find a better pipeline.',
)
_FACT = (
  'The score is confirmed by the run.',
  'Confirmed by the output.',
  'The score is confirmed, the rest is guessed.',
)
_THOUGHT = {
  'estimator': (
    'Another model may fit better.',
    'I try a different estimator.',
    'A new model may help.',
  ),
  'set': ('I tune a parameter.', 'This value may be better.'),
  'relative': ('I tune a parameter.', 'A larger step may help.'),
  'scale': ('Scaled features may help.', 'I change the scaling.'),
  'add': ('A new feature step may help.', 'I work on the features.'),
  'vectorize': ('Other text features may help.', 'I change the vectorizer.'),
  'remove': ('This step may hurt.', 'A simpler pipeline may do.'),
  'wrap': ('An ensemble of copies may be stable.', 'I wrap the model.'),
  'ensemble': ('Several models may do better.', 'I combine models.'),
  'data': ('I work on the data.', 'The data may need care.'),
  'combo': ('Two changes may do more.', 'I change two steps.'),
  'function': ('Another way may be faster.', 'I write this function anew.'),
  'constant': ('This value may be better.', 'I change a constant.'),
  'impossible': ('This idea may help.', 'I try a new idea.'),
  'idea': ('I follow the idea given.', 'I try the proposed idea.'),
  'look': ('I look first.', 'I want to see more before I edit.'),
}


class ScriptedExpert:
  """Expert stand-in.

  Args:
    quality: 0 picks moves whatever their worth, 1 strongly the good ones.
    p_look: chance of an action that edits nothing.
    p_blunder: chance of an edit that fails (impossible, or a step that the
      pipeline does not have).
    p_idea: chance of following a drawn idea while the trajectory is young.
    max_chars: longest instruction.
    agent: in whose format it answers.
  """

  name = 'scripted_expert'
  is_stand_in = True

  def __init__(
    self,
    quality: float = 0.35,
    *,
    p_look: float = 0.08,
    p_blunder: float = 0.05,
    p_idea: float = 0.6,
    max_chars: int = 160,
    agent: agents.AgentStyle = agents.AGENTS['research'],
  ):
    if not 0 <= quality <= 1:
      raise ValueError(f'quality={quality!r} must be between 0 and 1.')
    self.quality = quality
    self.p_look = p_look
    self.p_blunder = p_blunder
    self.p_idea = p_idea
    self.max_chars = max_chars
    self.agent = agent

  def act(
    self,
    state: types.State,
    task: types.TaskSpec,
    rng: random.Random,
    ideas: Sequence[str] = (),
  ) -> str:
    """One response in the agent's format."""
    ideas = tuple(ideas) or state.ideas
    if rng.random() < self.p_look:
      return self._say(state, task, rng, 'look', *self._look(state, rng))
    idea = self._idea(state, task, ideas)
    if idea and rng.random() < self.p_idea:
      family, text = 'idea', idea
    else:
      move = self._move(state, task, rng)
      family, text = move.family, move.say(rng)
    return self._say(
      state,
      task,
      rng,
      family,
      'Edit Script (AI)',
      {
        'script_name': state.script,
        'edit_instruction': text[: self.max_chars],
        'save_name': state.script,
      },
    )

  def _idea(
    self, state: types.State, task: types.TaskSpec, ideas: Sequence[str]
  ) -> str:
    """The idea of this step, '' where none is left or it does not apply."""
    if state.step >= len(ideas):
      return ''
    idea = ideas[state.step]
    needs = moves.needs_of(task.kind, task.modality).get(idea, ())
    present = step_names(workspace.text(state.files, state.script))
    return idea if not needs or set(needs) & set(present) else ''

  def _look(
    self, state: types.State, rng: random.Random
  ) -> tuple[str, dict[str, str]]:
    lines = workspace.text(state.files, state.script).count('\n') + 1
    return rng.choice(
      [
        ('List Files', {'dir_path': rng.choice(['.', 'data'])}),
        ('Execute Script', {'script_name': state.script}),
        (
          'Inspect Script Lines',
          {
            'script_name': state.script,
            'start_line_number': '1',
            'end_line_number': str(min(lines, 40)),
          },
        ),
        (
          'Understand File',
          {
            'file_name': state.script,
            'things_to_look_for': 'the model and its parameters',
          },
        ),
      ]
    )

  def _move(
    self, state: types.State, task: types.TaskSpec, rng: random.Random
  ) -> moves.Move:
    stock = moves.moves_for(task.kind, task.modality)
    present = set(step_names(workspace.text(state.files, state.script)))
    fits = [m for m in stock if not m.needs or present & set(m.needs)]
    blunders = [
      m
      for m in stock
      if m.family == 'impossible' or (m.needs and not present & set(m.needs))
    ]
    if blunders and rng.random() < self.p_blunder:
      return rng.choice(blunders)
    fits = [m for m in fits if m.family != 'impossible']
    # Families first: else the many estimators would drown the rest.
    groups: dict[str, list[moves.Move]] = {}
    for move in fits:
      groups.setdefault(move.family, []).append(move)
    share = {
      'estimator': 4.0,
      'set': 3.0,
      'vectorize': 2.0,
      'add': 1.5,
      'combo': 0.7,
    }
    family = rng.choices(
      list(groups), [share.get(name, 1.0) for name in groups]
    )[0]
    group = groups[family]
    weights = [10.0 ** (2 * self.quality * (m.worth - 0.5)) for m in group]
    return rng.choices(group, weights)[0]

  def _say(
    self,
    state: types.State,
    task: types.TaskSpec,
    rng: random.Random,
    family: str,
    action: str,
    args: dict[str, str],
  ) -> str:
    good = state.last_outcome in ('', 'ok')
    score = 'nothing' if state.score is None else f'{state.score:.3g}'
    entries = {
      'Reflection': rng.choice(_REFLECTION['ok' if good else 'other']).format(
        score=score, last=state.last_outcome.replace('_', ' ')
      ),
      'Research Plan and Status': rng.choice(_PLAN).format(metric=task.metric),
      'Fact Check': rng.choice(_FACT),
      'Thought': rng.choice(_THOUGHT[family]),
    }
    return self.agent.write(entries, action, args)
