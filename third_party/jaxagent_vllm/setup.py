"""The plug-in that lets a vLLM server take weights from jaxagent.

Installed where vLLM is, with `pip install --no-deps`: what it needs, vLLM has.
"""

from setuptools import setup

setup(
  name='jaxagent-vllm',
  version='0.2.0',
  description="Weights from jaxagent's trainer into a running vLLM server",
  license='Apache-2.0',
  packages=['jaxagent_vllm'],
  python_requires='>=3.10',
  entry_points={
    'vllm.general_plugins': ['jaxagent = jaxagent_vllm:register'],
  },
)
