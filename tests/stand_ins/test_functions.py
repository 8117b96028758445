"""Programs that the scripted editor writes anew: each way computes the same."""

from __future__ import annotations

import importlib.util
import pathlib
import random

import numpy as np
import pytest

from jaxagent.data import ideas
from jaxagent.envs.interfaces import EditRefused
from jaxagent.envs.model_line import step_names
from jaxagent.envs.tasks import load_task
from jaxagent.stand_ins import functions, moves
from jaxagent.stand_ins.editor import ScriptedEditor

TASKS = pathlib.Path(__file__).parents[2] / 'tasks'
STARTERS = {
  name: (TASKS / name / 'env/train.py').read_text()
  for name in ('vectorization', 'llama-inference')
}
OF = {
  'convolve': 'vectorization',
  'attend': 'llama-inference',
  'generate': 'llama-inference',
}
WAYS = [
  (name, way.replace('{n}', n))
  for name, ways in functions.WAYS.items()
  for way in ways
  for n in (('3', '50') if '{n}' in way else ('',))
]


def arguments(name):
  rng = np.random.RandomState(0)
  if name == 'convolve':
    return rng.rand(4, 9, 9, 2), rng.normal(size=(3, 3, 2, 5)), rng.rand(5)
  if name == 'attend':
    return tuple(rng.normal(size=(11, 4, 6)) for _ in range(3))
  path = TASKS / 'llama-inference/scripts/prepare.py'
  spec = importlib.util.spec_from_file_location('prepare_llama', path)
  prepare = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(prepare)
  return (prepare.drawn(rng),)


def computed(script, name):
  space = {'__name__': 'program'}
  exec(compile(script, 'program.py', 'exec'), space)
  if name == 'generate':
    space['STEPS'] = 6
  return space[name](*arguments(name))


@pytest.mark.parametrize(('name', 'way'), WAYS)
def test_every_way_computes_what_the_starter_computes(name, way):
  starter = STARTERS[OF[name]]
  changed = ScriptedEditor().edit(starter, f'Compute {name} with {way}.')
  assert changed != starter
  np.testing.assert_allclose(
    computed(changed, name), computed(starter, name), atol=1e-9
  )


def test_every_move_of_the_kind_is_carried_out_in_all_its_words():
  editor, done = ScriptedEditor(), set()
  stock = moves.moves_for('speed', 'code')
  alone = [m for m in stock if m.family != 'combo']
  for move in alone[::3] + [m for m in stock if m.family == 'combo'][::20]:
    if move.family == 'impossible':
      with pytest.raises(EditRefused):
        editor.edit(STARTERS['vectorization'], move.say())
      continue
    starter = STARTERS[OF[move.needs[0]]]
    for seed in range(3):
      changed = editor.edit(starter, move.say(random.Random(seed)))
      assert changed != starter or 'float64' in move.say()
    done.add(move.family)
  assert done == {'function', 'constant', 'combo'}, done


@pytest.mark.parametrize('name', STARTERS)
def test_a_program_has_a_hundred_ideas_of_its_own_functions(name):
  pool = ideas.idea_pool(load_task(name, TASKS))
  assert len(pool) >= ideas.MIN_POOL
  others = {f for f, task in OF.items() if task != name}
  assert not any(f' {other} ' in idea for idea in pool for other in others)
  assert set(step_names(STARTERS[name])) & set(OF)


@pytest.mark.parametrize(
  'instruction',
  [
    'Compute convolve with magic',
    'Compute solve with one product of matrices',
    'Compute convolve with blocks of 0 images',
    'Compute convolve with blocks of 99999999999 images',
    'Compute attend with sums by einsum',
    'Set NOTHING to 3',
    'Set DTYPE to np.float32)',
    'Set DTYPE to import',
    'Make it faster',
  ],
)
def test_what_the_editor_does_not_know_it_refuses(instruction):
  with pytest.raises(EditRefused):
    ScriptedEditor().edit(STARTERS['vectorization'], instruction)


def test_comments_and_other_functions_stay():
  starter = STARTERS['vectorization']
  text = starter.replace('def convolve', '# slow\ndef convolve')
  changed = ScriptedEditor().edit(
    text,
    'Compute convolve with one product of matrices, then set DTYPE to np.float32',
  )
  assert '# slow\ndef convolve' in changed and 'DTYPE = np.float32' in changed
  head, tail = starter.split('DTYPE')[0], starter[starter.index('def solve') :]
  assert changed.startswith(head) and changed.endswith(tail)
