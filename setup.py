"""Packaging of jaxagent. Heavy parts are extras; see README.md."""

import pathlib
import shutil

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).parent
# Folders of the checkout that a wheel has within the package
# (`jaxagent/files/bundled.py`).
BUNDLED = ('configs', 'tasks')


class BuildWithBundled(build_py):
  """Copies the configs and tasks beside the modules; an editable install needs none."""

  def run(self):
    super().run()
    if self.editable_mode:
      return
    for name in BUNDLED:
      target = pathlib.Path(self.build_lib, 'jaxagent', '_bundled', name)
      shutil.rmtree(target, ignore_errors=True)  # of an earlier build
      ignored = shutil.ignore_patterns('.*', '__pycache__', '*.pyc')
      shutil.copytree(ROOT / name, target, ignore=ignored)


setup(
  name='jaxagent',
  version='0.1.0',
  description=(
    'JAX/Flax-native RL trainer for language models that do machine-learning '
    'engineering.'
  ),
  long_description=(ROOT / 'README.md').read_text(encoding='utf-8'),
  long_description_content_type='text/markdown',
  license='Apache-2.0',
  python_requires='>=3.11',
  cmdclass={'build_py': BuildWithBundled},
  packages=find_packages(include=['jaxagent', 'jaxagent.*']),
  package_data={
    'jaxagent': [
      'recipes/ideator/*.j2',
      'report/*.j2',
      'report/*.html',
      'live/static/*',
      'recipes/template/*.txt',
      'py.typed',
    ]
  },
  entry_points={'console_scripts': ['jaxagent = jaxagent.cli:main']},
  install_requires=[
    'jax>=0.10,<0.12',
    'flax>=0.12,<0.13',
    'optax>=0.2.5,<0.3',
    'orbax-checkpoint>=0.11,<0.13',
    'tensorstore>=0.1.74,<0.2',
    'numpy>=2.0,<3',
    'scipy>=1.13,<2',
    'pandas>=2.2,<4',
    'scikit-learn>=1.5,<2',
    'tokenizers>=0.22,<0.24',
    'transformers>=4.56,<6',
    'huggingface_hub>=0.34,<3',
    'ml_collections>=1.0,<2',
    'absl-py>=2.1,<3',
    'tensorboardX>=2.6,<3',
    'jinja2>=3.1,<4',
    'httpx>=0.27,<0.29',
    'libcst>=1.5,<2',
    'pyyaml>=6.0,<7',
    'rich>=13,<16',
    'pillow>=10,<14',
  ],
  extras_require={
    'cuda12': ['jax[cuda12]>=0.10,<0.12'],
    'tpu': ['jax[tpu]>=0.10,<0.12'],
    # Servers have an environment of their own, from a lock: launch_scripts/vllm_env.sh
    # makes it. This is for one by hand.
    'vllm': ['vllm>=0.32,<0.33'],
    'nccl': ['cupy-cuda12x>=13,<15'],  # weights to vLLM on other GPUs
    'docker': ['docker>=7.1,<8'],  # 7.0 fails with requests 2.32
    'ray': ['ray>=2.40,<3'],
    # Trackers; each may live in an environment of its own (docs/trackers.md).
    'wandb': ['wandb>=0.21,<1'],
    'trackio': ['trackio>=0.20,<1'],
    'mlflow': ['mlflow>=3,<4'],
    'live': ['starlette>=0.41,<2', 'uvicorn>=0.32,<0.55'],
    'docs': ['mkdocs-material>=9.5,<10', 'mkdocs>=1.6,<2'],  # the docs site
    'tutorial': [  # docs/tutorial.ipynb
      'matplotlib>=3.9,<4',
      'nbclient>=0.10,<0.12',
      'nbformat>=5.10,<6',
      'ipykernel>=6.29,<8',
    ],
    'dev': [
      'pytest>=8,<10',
      'pytest-timeout>=2.3,<3',
      'pytest-xdist>=3.7,<4',
      'hypothesis>=6.100,<7',
      'setuptools>=77,<85',  # makes a wheel, without a network
      'safetensors>=0.5,<0.9',  # its reader, to compare files with
      'ruff>=0.17,<0.18',  # its formatter changes between minor versions
      'matplotlib>=3.9,<4',
      'kubeflow-trainer-api>=2.1,<3',  # types of the JobSet API
      'mypy>=2.4,<2.5',  # it finds other things in another minor version
      'playwright>=1.50,<2',  # drives the system's chromium, for the live page
    ],
  },
)
