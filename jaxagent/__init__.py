"""jaxagent: reinforcement-train language models to do ML engineering."""

__version__ = '0.1.0'

# Former module of the package -> where it is now; for one version, with a message.
_MOVED = {
  'accelerator': 'jaxagent.devices.accelerator',
  'behaviour': 'jaxagent.analysis.behaviour',
  'benchmark_figures': 'jaxagent.analysis.benchmark_figures',
  'disk': 'jaxagent.files.disk',
  'diversity': 'jaxagent.analysis.diversity',
  'evaluation': 'jaxagent.analysis.evaluation',
  'failure_modes': 'jaxagent.analysis.failure_modes',
  'processes': 'jaxagent.devices.processes',
  'sharding': 'jaxagent.devices.sharding',
  'summary': 'jaxagent.analysis.summary',
}


def __getattr__(name: str) -> object:
  """Returns a module by its former name, and warns that it has moved."""
  if name not in _MOVED:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  import importlib
  import warnings

  warnings.warn(
    f'jaxagent.{name} is now {_MOVED[name]}; the former name goes with the next '
    'version.',
    FutureWarning,
    stacklevel=2,
  )
  module = importlib.import_module(_MOVED[name])
  globals()[name] = module  # warned of once
  return module
