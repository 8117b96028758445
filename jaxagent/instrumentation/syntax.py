"""Places of marks by a program's syntax tree; needs no model.

It knows the names that scikit-learn, boosting libraries, PyTorch and Keras give
to loading, fitting and predicting. What it does not know gets no mark.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jaxagent.instrumentation import marks
from jaxagent.instrumentation.insert import (
  Place,
  insert,
  reads_the_sample,
)
from jaxagent.instrumentation.program import Instrumented
from jaxagent.instrumentation.source import FAULTS, blocks, parse, statements

_READERS = ('read_', 'load', 'open', 'imread', 'fetch_', 'reader', 'DataFrame')
_FITS = ('fit', 'train', 'fit_resample', 'fit_predict')
_PREDICTS = (
  'predict',
  'predict_proba',
  'decision_function',
  'predict_log_proba',
)
# Names of classes that hold what they learn, but predict nothing.
_NO_MODELS = (
  'scaler', 'encoder', 'vectorizer', 'imputer', 'transformer', 'selector', 'kfold',
  'split', 'dataset', 'loader', 'frame', 'series', 'path', 'pca', 'binarizer',
  'counter', 'loss', 'optimizer', 'normalizer', 'features', 'discretizer',
)  # fmt: skip
_MODELS = (
  'classifier', 'regressor', 'regression', 'ridge', 'lasso', 'elasticnet', 'svc',
  'svr', 'svm', 'bayes', 'nb', 'analysis', 'neighbors', 'forest', 'tree', 'boost',
  'model', 'net', 'sequential', 'module', 'pipeline', 'ensemble', 'huber',
  'perceptron', 'process', 'booster', 'centroid', 'gbm', 'cv',
)  # fmt: skip
_METRICS = ('loss', 'score', 'error', 'accuracy', 'auc', 'rmse', 'mae', 'f1')
_HELD_OUT = ('val', 'test', 'hold', 'cv', 'oof', 'dev')
_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


class SyntaxInstrumenter:
  """See `program.Instrumenter`."""

  def instrument(self, code: str, key: bytes) -> Instrumented:
    try:
      tree = parse(code)
      return insert(code, tree, find(tree), key)
    except FAULTS as error:
      return Instrumented(code, refused=f'{type(error).__name__}: {error}')


def find(tree: ast.Module) -> list[Place]:
  """Finds the places of marks, one or none for each."""
  every = list(statements(tree.body))
  found: dict[int, Place] = {}

  def put(number: int, statement: ast.stmt | None, value: str = '') -> None:
    if statement is not None:
      found[number] = Place(number, statement, value)

  loads = [s for s in every if _reads(s) and not reads_the_sample(s)]
  put(marks.LOADED, _last_of_block(loads, tree))
  put(marks.IMPORTED, _imports(tree, loads[0] if loads else None))
  put(marks.DEFINED, next((s for s in every if _defines(s)), None))
  trained = next((s for s in every if _trains(s)), None)
  put(marks.TRAINED, trained)
  predicts = [s for s in every if _predicts(s)]
  put(marks.PREDICTED, _for_the_test(predicts))
  for statement in every:
    name = _measured(statement)
    if not name:
      continue
    held_out = any(part in ast.unparse(statement).lower() for part in _HELD_OUT)
    number = marks.TESTING_LOSS if held_out else marks.TRAINING_LOSS
    if number not in found:
      put(number, statement, name)
  return [found[number] for number in sorted(found)]


def _simple(statement: ast.stmt) -> bool:
  """One that is done when the next begins, and leads on to it."""
  return isinstance(
    statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)
  )


def _calls(node: ast.AST) -> Iterator[tuple[str, ast.Call]]:
  """(last part of the name, call) of all that are made when it runs."""
  if isinstance(node, _NESTED):
    return
  if isinstance(node, ast.Call):
    yield _last_name(node.func), node
  for child in ast.iter_child_nodes(node):
    yield from _calls(child)


def _last_name(node: ast.expr) -> str:
  if isinstance(node, ast.Attribute):
    return node.attr
  return node.id if isinstance(node, ast.Name) else ''


def _reads(statement: ast.stmt) -> bool:
  if isinstance(statement, (ast.With, ast.AsyncWith)):
    items = [item.context_expr for item in statement.items]
    return any(
      name == 'open' and not _writes(call)
      for e in items
      for name, call in _calls(e)
    )
  return _simple(statement) and any(
    name.startswith(_READERS) and not _writes(call) and name != 'DataFrame'
    for name, call in _calls(statement)
  )


def _writes(call: ast.Call) -> bool:
  modes = [
    a.value
    for a in [*call.args[1:], *(k.value for k in call.keywords)]
    if isinstance(a, ast.Constant) and isinstance(a.value, str)
  ]
  return any(set(m) & set('wax+') and len(m) < 4 for m in modes)


def _last_of_block(found: list[ast.stmt], tree: ast.Module) -> ast.stmt | None:
  """The last that stands in the same block as the first."""
  if not found:
    return None
  for node in ast.walk(tree):
    for block in blocks(node):
      if any(s is found[0] for s in block):
        within = {id(s) for s in block}
        return [s for s in found if id(s) in within][-1]
  return found[0]


def _imports(tree: ast.Module, before: ast.stmt | None) -> ast.stmt | None:
  """The last import of the module that comes before data are loaded."""
  limit = before.lineno if before is not None else float('inf')
  found: ast.stmt | None = None
  for statement in tree.body:
    if statement.lineno > limit:
      break
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
      if getattr(statement, 'module', '') != '__future__':
        found = statement
    elif isinstance(statement, ast.Try) and any(
      isinstance(s, (ast.Import, ast.ImportFrom)) for s in statement.body
    ):
      found = statement
  return found


def _is_model(name: str) -> bool:
  low = name.lower()
  if low in ('make_pipeline', 'make_model', 'build_model', 'get_model'):
    return True
  if not name[:1].isupper() or low.endswith(_NO_MODELS):
    return False
  return low.endswith(_MODELS)


def _defines(statement: ast.stmt) -> bool:
  return _simple(statement) and any(
    _is_model(name) for name, _ in _calls(statement)
  )


def _trains(statement: ast.stmt) -> bool:
  """A fit of a model, or the outermost loop with a backward pass."""
  if isinstance(statement, (ast.For, ast.While)):
    return any(name == 'backward' for name, _ in _calls(statement))
  return _simple(statement) and any(
    name in _FITS and not _prepares(call) for name, call in _calls(statement)
  )


def _prepares(call: ast.Call) -> bool:
  """A fit of something that predicts nothing, or the switch `model.train()`."""
  receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
  if receiver is None or not (call.args or call.keywords):
    return True
  if isinstance(receiver, ast.Call):
    return not _is_model(_last_name(receiver.func))
  return _last_name(receiver).lower().endswith(_NO_MODELS)


def _predicts(statement: ast.stmt) -> bool:
  return _simple(statement) and any(
    name in _PREDICTS for name, _ in _calls(statement)
  )


def _for_the_test(statements: list[ast.stmt]) -> ast.stmt | None:
  """The one whose rows are the test's; the last where none says so."""
  named = [s for s in statements if 'test' in ast.unparse(s).lower()]
  found = named or statements
  return found[-1] if found else None


def _measured(statement: ast.stmt) -> str:
  """The variable that gets a loss or a score; ''."""
  if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
    return ''
  target = statement.targets[0]
  if not isinstance(target, ast.Name):
    return ''
  for name, _ in _calls(statement.value):
    if any(part in name.lower().split('_') for part in _METRICS):
      return target.id
  return ''
