"""The launchers print what they would run, and refuse what they cannot."""

import pathlib
import shlex
import subprocess

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[2]
NEEDED = {
  'single_node_8gpu': [],
  'slurm': [],
  'tpu_pod': ['--tpu=pod', '--zone=z'],
  'ray_sandboxes': ['--address=head:6379'],
  'k8s_jobset': ['--image=registry/jaxagent:1'],
}


def _run(name, *flags):
  return subprocess.run(
    ['bash', f'launch_scripts/{name}.sh', *flags],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=30,
  )


@pytest.mark.parametrize('name', NEEDED)
def test_dry_run_prints_the_command(name):
  done = _run(name, '--dry_run', *NEEDED[name])
  assert done.returncode == 0, done.stderr
  assert 'jaxagent.main' in done.stdout
  assert '--config=configs/stepwise_ppo.py:qwen2.5-7b' in done.stdout


@pytest.mark.parametrize('name', NEEDED)
def test_bad_arguments(name):
  done = _run(name, '--dry_run', *NEEDED[name], '--nonsense=1')
  assert done.returncode == 2
  assert "unknown argument '--nonsense=1'; choose from" in done.stderr
  done = _run(name, '--dry_run', *NEEDED[name], '--config=configs/none.py')
  assert done.returncode == 2 and 'choose one of: configs/' in done.stderr
  if NEEDED[name]:
    done = _run(name, '--dry_run')
    assert done.returncode == 2 and 'is needed' in done.stderr


def test_numbers_are_checked():
  done = _run('slurm', '--dry_run', '--nodes=0')
  assert done.returncode == 2 and "--nodes='0'" in done.stderr


def test_slurm_quotes_what_it_hands_on():
  done = _run('slurm', '--dry_run', '--nodes=4', '--', '--work_dir=/shared/a b')
  words = shlex.split(done.stdout)
  wrapped = next(w for w in words if w.startswith('--wrap='))[7:]
  inner = shlex.split(wrapped)
  assert inner[0] == 'srun' and '--work_dir=/shared/a b' in inner
  assert '--config.mesh.fsdp=32' in inner and '--nodes=4' in words


def test_sandboxes_are_those_of_the_cluster():
  done = _run('ray_sandboxes', '--dry_run', '--address=head:6379', '--slots=8')
  words = shlex.split(done.stdout)
  assert '--config.sandbox.ray_address=head:6379' in words
  assert '--config.sandbox.slots=8' in words


def test_jobset_is_yaml_and_whole():
  done = _run('k8s_jobset', '--dry_run', '--image=r/i:1', '--nodes=3')
  assert '@' not in done.stdout.split('apiVersion')[1]
  manifest = yaml.safe_load(done.stdout)
  job = manifest['spec']['replicatedJobs'][0]['template']['spec']
  assert job['parallelism'] == job['completions'] == 3
  container = job['template']['spec']['containers'][0]
  assert container['image'] == 'r/i:1'
  assert '--config.mesh.fsdp=24' in container['command']
  done = _run('k8s_jobset', '--dry_run', '--image=a"b')
  assert done.returncode == 2 and 'may not' in done.stderr


@pytest.mark.parametrize('path', sorted(ROOT.glob('launch_scripts/*.sh')))
def test_shell_syntax(path):
  done = subprocess.run(['bash', '-n', path], capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
