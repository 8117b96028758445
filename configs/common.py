"""What every experiment here starts from; see `jaxagent.config.base`."""

from ml_collections import ConfigDict

from jaxagent.config.base import add_section, base, variant

__all__ = ['ConfigDict', 'add_section', 'base', 'variant']
