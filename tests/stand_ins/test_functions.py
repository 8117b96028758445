"""Functions that the scripted editor writes anew, and programs made of them."""

from __future__ import annotations

import ast
import importlib.util
import json
import pathlib
import random
import re

import numpy as np
import pandas as pd
import pytest

from jaxagent.data import ideas
from jaxagent.envs.interfaces import EditRefused
from jaxagent.envs.model_line import step_names
from jaxagent.envs.solution import parse
from jaxagent.envs.tasks import load_task
from jaxagent.stand_ins import function_programmer, moves, ways
from jaxagent.stand_ins.editor import ScriptedEditor
from tests.subset import fast

TASKS = pathlib.Path(__file__).parents[2] / 'tasks'
OF = {
  'convolve': 'vectorization',
  'attend': 'llama-inference',
  'generate': 'llama-inference',
  'mask_of': 'tgs-salt-identification-challenge',
  'contrail_of': 'identify-contrails',
  'ordered': 'AI4Code',
  'part_of': 'tweet-sentiment-extraction',
  'answer_of': 'chaii-hindi-and-tamil-question-answering',
  'pointers_of': 'CLRS',
}
PROGRAMS = ('convolve', 'attend', 'generate')
STARTERS = {
  name: (TASKS / name / 'env/train.py').read_text() for name in OF.values()
}
EVERY_WAY = [
  (name, words)
  for name, known in ways.WAYS.items()
  for way in known
  for words in sorted({way.tried()[0], way.tried()[-1]})
]
WAYS = [(name, words) for name, words in EVERY_WAY if name in PROGRAMS]
OTHERS = [(name, words) for name, words in EVERY_WAY if name not in PROGRAMS]


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


def given(name):
  """Arguments of a function of the catalogue's starters, and what checks its result."""
  rng = np.random.RandomState(0)
  if name == 'mask_of':
    return (
      rng.rand(20, 30) * 255,
    ), lambda m: m.shape == (20, 30) and m.dtype == bool
  if name == 'contrail_of':
    band = 280 + rng.normal(size=(20, 30, 8))
    return (band,), lambda m: m.shape == (20, 30) and m.dtype == bool
  if name == 'ordered':
    kinds = ['code'] * 5 + ['markdown'] * 3
    cells = [
      (f'c{i}', kind, f'load table_{i} x') for i, kind in enumerate(kinds)
    ]
    ids = sorted(c[0] for c in cells)
    return (cells,), lambda order: sorted(order) == ids
  if name == 'part_of':
    text = 'what a great day. truly great! see you soon'
    return (text, 'positive'), lambda part: part and part in text
  if name == 'answer_of':
    text = 'Asha was born in 1932. Ravi built a house of 12 m. He died.'
    words = set(text.replace('.', ' ').split())
    return (
      text,
      'When was Asha born?',
    ), lambda a: a and set(a.split()) <= words
  graph = rng.rand(6, 6) * (rng.rand(6, 6) < 0.5)
  graph += graph.T
  return (graph,), lambda p: p.shape == (6, 6) and p.min() >= 0 and p.max() < 6


def write_training_files(folder):
  (folder / 'data/train').mkdir(parents=True)
  cells = [f'load table_{i} x' for i in range(5)]
  source = {f'c{i}': text for i, text in enumerate(cells)}
  (folder / 'data/train/n1.json').write_text(json.dumps({'source': source}))
  (folder / 'data/train_orders.csv').write_text(
    f'id,cell_order\nn1,{" ".join(source)}\n'
  )
  (folder / 'data/train.csv').write_text(
    'text,selected_text,sentiment,context,answer_text\n'
    'a great day,great,positive,Asha was born in 1932 .,1932\n'
  )


@pytest.mark.parametrize(('name', 'way'), OTHERS)
def test_every_way_gives_an_answer_of_the_right_form(
  name, way, tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  write_training_files(tmp_path)
  changed = ScriptedEditor().edit(
    STARTERS[OF[name]], f'Compute {name} with {way}.'
  )
  (node,) = [
    n
    for n in ast.parse(changed).body
    if isinstance(n, ast.FunctionDef) and n.name == name
  ]
  space = {'np': np, 'pd': pd, 're': re, 'json': json, 'COLDER': 1.0}
  exec(compile(ast.unparse(node), 'train.py', 'exec'), space)
  arguments, is_right = given(name)
  assert is_right(space[name](*arguments))


@pytest.mark.slow
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
      assert changed != starter or move.family == 'constant'
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


@pytest.mark.parametrize('name', fast(sorted(set(OF.values())), first=2))
def test_scripted_programs_of_a_starter_are_many_and_parse(name):
  spec, rng = load_task(name, TASKS), random.Random(0)
  author = function_programmer.FunctionProgrammer(0.0)
  texts = [author.write(spec, author.design(spec, rng), rng) for _ in range(60)]
  assert len(set(texts)) > 30
  for text in texts:
    code = parse(text).code
    assert spec.submission in code and set(step_names(code)) & set(OF)


def test_a_revised_program_differs_in_one_instruction():
  spec, rng = load_task(OF['mask_of'], TASKS), random.Random(0)
  author = function_programmer.FunctionProgrammer(0.0)
  for _ in range(50):
    old = author.design(spec, rng)
    new = author.design(spec, rng, old)
    assert sum(a != b for a, b in zip(old.by_name, new.by_name)) == 1


def test_a_crossed_program_has_instructions_of_both_and_is_neither():
  spec, rng = load_task(OF['attend'], TASKS), random.Random(0)
  author = function_programmer.FunctionProgrammer(0.0)
  crossed = 0
  for _ in range(50):
    one, two = author.design(spec, rng), author.design(spec, rng)
    made = author.crossed(spec, one, two, rng)
    differ = sum(a != b for a, b in zip(one.by_name, two.by_name))
    assert (made is None) == (differ < 2)
    if made is not None:
      crossed += 1
      assert made not in (one, two)
      assert all(
        part in both
        for part, *both in zip(made.by_name, one.by_name, two.by_name)
      )
  assert crossed


def test_a_failed_program_is_the_whole_one_with_a_slip():
  spec, rng = load_task(OF['mask_of'], TASKS), random.Random(0)
  author = function_programmer.FunctionProgrammer(0.0)
  design = author.design(spec, rng)
  whole = parse(author.write(spec, design, rng)).code
  seen = set()
  for _ in range(40):
    failed = author.failed(spec, design, rng)
    code = parse(failed.response).code
    assert code != whole
    assert failed.reason and (
      failed.output or failed.outcome == 'no_submission'
    )
    seen.add(failed.outcome)
  assert seen == {'script_error', 'no_submission'}


def test_every_slip_breaks_a_program():
  spec, rng = load_task(OF['mask_of'], TASKS), random.Random(0)
  design = function_programmer.FunctionProgrammer().design(spec, rng)
  whole = function_programmer.FunctionProgrammer(0.0).write(spec, design, rng)
  code = parse(whole).code
  for _ in range(20):
    text = function_programmer.FunctionProgrammer(1.0).write(spec, design, rng)
    assert parse(text).code != code
