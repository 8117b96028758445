"""What every experiment here starts from; see `jaxagent.config.base`."""

from ml_collections import ConfigDict

from jaxagent.config.base import add_section, base, variant

__all__ = ['ConfigDict', 'add_section', 'base', 'on_eight_gpus', 'variant']


def on_eight_gpus(config: ConfigDict) -> None:
  """Sets precision, memory and mesh of a model of billions on one node, in place."""
  config.model.dtype = 'bfloat16'
  config.model.scan_layers = True
  config.model.remat = 'full'
  config.mesh = ConfigDict(dict(data=1, fsdp=8, tensor=1))
