"""The launchers print what they would run, and refuse what they cannot."""

import os
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


def _run(name, *flags, env=None):
  return subprocess.run(
    ['bash', f'launch_scripts/{name}.sh', *flags],
    cwd=ROOT,
    env=env,
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


def test_slurm_asks_for_whole_nodes():
  words = shlex.split(_run('slurm', '--dry_run').stdout)
  assert '--exclusive' in words and '--mem=0' in words


@pytest.mark.parametrize('name', sorted(NEEDED.keys() - {'k8s_jobset'}))
def test_which_python_runs(name):
  env = {k: v for k, v in os.environ.items() if k != 'VIRTUAL_ENV'}

  def command(*flags, **more):
    done = _run(name, '--dry_run', *NEEDED[name], *flags, env=env | more)
    return done.stdout.replace('\\', '')

  assert ' .venv/bin/python -m jaxagent.main' in command()
  # An active environment is of this machine, not of a TPU's workers.
  active = '.venv' if name == 'tpu_pod' else '/active'
  found = command(VIRTUAL_ENV='/active')
  assert f' {active}/bin/python -m jaxagent.main' in found
  found = command('--python=/own/python', VIRTUAL_ENV='/active')
  assert ' /own/python -m jaxagent.main' in found


def test_trainer_and_server_fit_one_gpu(monkeypatch):
  monkeypatch.delenv('XLA_PYTHON_CLIENT_MEM_FRACTION', raising=False)
  done = _run('single_node_8gpu', '--dry_run', '--', '--config.seed=1')
  shares = [
    float(word.partition('=')[2])
    for word in shlex.split(done.stdout)
    if 'MEM_FRACTION' in word or 'gpu_memory_utilization' in word
  ]
  assert len(shares) == 2 and sum(shares) <= 0.95
  assert shlex.split(done.stdout)[-1] == '--config.seed=1'


def test_tpus_have_the_native_engine():
  done = _run('tpu_pod', '--dry_run', *NEEDED['tpu_pod'])
  assert '--config.rollout.engine=native' in done.stdout


def test_tpus_find_each_other_and_their_cache_fits():
  flag = '--config.rollout.max_num_seqs='
  done = _run('tpu_pod', '--dry_run', *NEEDED['tpu_pod'], '--', f'{flag}8')
  words = shlex.split(shlex.split(done.stdout)[-1].partition('--command=')[2])
  assert words[:5] == ['cd', 'jaxagent', '&&', 'env', 'JAXAGENT_CLUSTER=auto']
  # `tests/learner/test_plan.py` has what 16 need; a flag of one's own comes last.
  assert [w for w in words if w.startswith(flag)] == [f'{flag}16', f'{flag}8']


def test_vllm_of_the_other_kind_is_left_alone(tmp_path):
  mark = tmp_path / '.made-cuda-1'
  mark.touch()
  done = _run('vllm_env', 'cpu', str(tmp_path))
  assert done.returncode == 2 and 'give another FOLDER' in done.stderr
  assert mark.exists()


@pytest.mark.parametrize('kind', ['cpu', 'cuda'])
def test_tests_leave_vllm_for_cuda_alone(tmp_path, kind):
  scripts = {
    'vllm_env.sh': 'echo "$@"',
    'install_docker.sh': '',
    '_environment.sh': f'make_environment() {{ wait; '
    f'JAXAGENT_PYTHON={tmp_path}/python; }}',
  }
  folder = tmp_path / 'launch_scripts'
  folder.mkdir()
  for name, text in scripts.items():
    (folder / name).write_text(text)
  (folder / 'test.sh').write_text((ROOT / 'launch_scripts/test.sh').read_text())
  python = tmp_path / 'python'
  python.write_text('#!/bin/sh\necho "tests in $JAXAGENT_TEST_VLLM_FOLDER"\n')
  python.chmod(0o755)
  (tmp_path / '.venv-vllm').mkdir()
  (tmp_path / '.venv-vllm' / f'.made-{kind}-1').touch()
  env = {k: v for k, v in os.environ.items() if k != 'JAXAGENT_NO_INSTALL'}
  done = subprocess.run(
    ['bash', folder / 'test.sh'],
    env=env,
    capture_output=True,
    text=True,
    timeout=30,
  )
  name = {'cpu': '.venv-vllm', 'cuda': '.venv-vllm-cpu'}[kind]
  assert f'cpu {tmp_path}/{name}\n' in done.stdout, done.stderr
  assert f'tests in {name}\n' in done.stdout


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
  flags = ['--config.expert.model=it\'s "a": $(HOME) #', '--work_dir=/work/b']
  done = _run('k8s_jobset', '--dry_run', '--image=r/i:1', '--', *flags)
  manifest = yaml.safe_load(done.stdout)
  job = manifest['spec']['replicatedJobs'][0]['template']['spec']
  command = job['template']['spec']['containers'][0]['command']
  assert [f.replace('$$', '$') for f in command[-2:]] == flags
  assert '$$(HOME)' in command[-2]
  done = _run('k8s_jobset', '--dry_run', '--image=r/i:1', '--', '--a=\n- b')
  assert done.returncode == 2 and 'control character' in done.stderr
  done = _run('k8s_jobset', '--dry_run', '--image=a"b')
  assert done.returncode == 2 and 'may not' in done.stderr


@pytest.mark.parametrize(
  'flag',
  [
    '--name=Run1',
    '--name=1run',
    '--name=run_1',
    '--name=run.1',
    '--name=run-',
    '--name=' + 46 * 'a',
    '--claim=Work',
    '--claim=work_dir',
    '--claim=a/b',
    '--image=Registry/Jax:1',
    '--image=jax:1:2',
  ],
)
def test_names_that_kubernetes_refuses_are_refused_at_once(flag):
  done = _run('k8s_jobset', '--dry_run', '--image=r/i:1', flag)
  name = flag.partition('=')[0]
  assert done.returncode == 2 and f"error: {name}='" in done.stderr


def test_names_that_kubernetes_takes():
  flags = ['--name=' + 45 * 'a', '--claim=a.b-1', '--nodes=10']
  image = '--image=Host.io:5000/a_b/c.d:V1.0_x@sha256:' + 64 * 'a'
  done = _run('k8s_jobset', '--dry_run', image, *flags)
  assert done.returncode == 0, done.stderr
  # One digit more of the pods' index.
  assert (
    _run('k8s_jobset', '--dry_run', image, *flags, '--nodes=11').returncode == 2
  )


def test_a_pod_has_what_sandbox_and_vllm_need():
  done = _run('k8s_jobset', '--dry_run', '--image=r/i:1', '--dir=/src/jaxagent')
  manifest = yaml.safe_load(done.stdout)
  job = manifest['spec']['replicatedJobs'][0]['template']['spec']
  pod = job['template']['spec']
  container = pod['containers'][0]
  assert container['workingDir'] == '/src/jaxagent'
  rights = container['securityContext']
  assert rights['capabilities']['add'] == ['SYS_ADMIN']
  for profile in ('seccompProfile', 'appArmorProfile'):
    assert rights[profile] == {'type': 'Unconfined'}
  mounts = {m['mountPath']: m['name'] for m in container['volumeMounts']}
  volumes = {v.pop('name'): v for v in pod['volumes']}
  assert volumes[mounts['/dev/shm']] == {'emptyDir': {'medium': 'Memory'}}
  done = _run('k8s_jobset', '--dry_run', '--image=r/i:1', '--dir=src')
  assert done.returncode == 2 and "--dir='src' must be" in done.stderr


@pytest.mark.parametrize('path', sorted(ROOT.glob('launch_scripts/*.sh')))
def test_shell_syntax(path):
  done = subprocess.run(['bash', '-n', path], capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
