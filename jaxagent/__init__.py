"""jaxagent: reinforcement-train language models to do ML engineering."""

__version__ = '0.1.0'
