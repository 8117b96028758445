"""The launchers print what they would run, and refuse what they cannot."""

import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time

import pytest
import yaml

from jaxagent import errors

ROOT = pathlib.Path(__file__).parents[2]
NEEDED = {
  'single_node_8gpu': [],
  # An interpreter that finds no fault with the config.
  'slurm': ['--python=true'],
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
  if NEEDED[name] and name != 'slurm':
    done = _run(name, '--dry_run')
    assert done.returncode == 2 and 'is needed' in done.stderr


def test_numbers_are_checked():
  done = _run('slurm', '--dry_run', *NEEDED['slurm'], '--nodes=0')
  assert done.returncode == 2 and "--nodes='0'" in done.stderr


def test_slurm_quotes_what_it_hands_on():
  flags = ['--python=true', '--nodes=4', '--', '--work_dir=/shared/a b']
  done = _run('slurm', '--dry_run', *flags)
  words = shlex.split(done.stdout)
  wrapped = next(w for w in words if w.startswith('--wrap='))[7:]
  inner = shlex.split(wrapped)
  assert inner[0] == 'srun' and '--work_dir=/shared/a b' in inner
  assert '--config.mesh.fsdp=32' in inner and '--nodes=4' in words


def test_slurm_asks_for_whole_nodes():
  words = shlex.split(_run('slurm', '--dry_run', *NEEDED['slurm']).stdout)
  assert '--exclusive' in words and '--mem=0' in words


def test_a_run_that_would_be_refused_is_not_queued(tmp_path):
  """Interpreter and config are tried before the queue, in a dry run, too."""
  sbatch = tmp_path / 'sbatch'
  sbatch.write_text(f'#!/bin/sh\ntouch {tmp_path}/queued\necho 17\n')
  sbatch.chmod(0o755)
  env = os.environ | {'PATH': f'{tmp_path}:{os.environ["PATH"]}'}
  for flags, fault in (
    (['--python=/no/python'], "--python='/no/python' is no interpreter here"),
    ([f'--python={sys.executable}'], 'error: config.expert.model is empty'),
  ):
    for dry in ([], ['--dry_run']):
      done = _run('slurm', *dry, *flags, env=env)
      assert done.returncode == 2 and fault in done.stderr
      assert ('sbatch' in done.stdout) == bool(dry)
  assert not (tmp_path / 'queued').exists()
  done = _run('slurm', *NEEDED['slurm'], env=env)
  assert done.returncode == 0 and (tmp_path / 'queued').exists()
  log = ROOT / 'jaxagent-17.log'
  assert f'job 17 is queued; log: {log}; state: squeue -j 17' in done.stdout


def test_slurm_is_handed_options_of_its_own():
  given = "--sbatch=--qos=long --dependency=afterok:7 --comment='a b'"
  done = _run('slurm', '--dry_run', *NEEDED['slurm'], given)
  words = shlex.split(done.stdout)
  assert {'--qos=long', '--dependency=afterok:7', '--comment=a b'} <= set(words)
  # What comes last wins.
  assert words.index('--qos=long') > words.index('--requeue')
  done = _run('slurm', '--dry_run', *NEEDED['slurm'], "--sbatch=--qos='a")
  assert done.returncode == 2 and 'quote without its other' in done.stderr


def test_slurm_runs_on_nodes_without_gpus():
  done = _run('slurm', '--dry_run', *NEEDED['slurm'], '--gpus=0', '--nodes=3')
  assert done.returncode == 0
  assert 'gpu' not in done.stdout and 'JAX_PLATFORMS=cpu' in done.stdout
  assert '--config.mesh.fsdp=3' in done.stdout


def test_lines_of_slurm_carry_their_process():
  done = _run('slurm', '--dry_run', *NEEDED['slurm'])
  wrapped = shlex.split(done.stdout)[-1].removeprefix('--wrap=')
  assert '--label' in shlex.split(wrapped)


def _chained(folder, *statuses, seconds=0, busy=0):
  """Status, output and number of requeues of a job started until it is left alone.

  busy: how often the controller does not answer first.
  """
  scripts = {
    'scontrol': f'echo x >>{folder}/asked; '
    f'[ $(wc -l <{folder}/asked) -gt {busy} ] && echo "$@" >>{folder}/requeued',
    'sleep': '',
    'run': f'exit $(sed -n "$(wc -l <{folder}/starts)p" {folder}/statuses)',
  }
  for name, text in scripts.items():
    (folder / name).write_text(f'#!/bin/sh\n{text}\n')
    (folder / name).chmod(0o755)
  (folder / 'statuses').write_text(''.join(f'{s}\n' for s in statuses))
  (folder / 'starts').touch()
  requeued = folder / 'requeued'
  requeued.touch()
  # A run of some minutes: bash counts on from what SECONDS is given.
  chain = (ROOT / 'launch_scripts/slurm_chain.sh').read_text()
  chain = chain.replace('set -u\n', f'set -u\nSECONDS={seconds}\n')
  said = ''
  for number in range(len(statuses) + 1):
    (folder / 'starts').write_text('\n' * (number + 1))
    done = subprocess.run(
      ['bash', '-c', chain, 'chain', folder / 'run'],
      cwd=folder,
      env=os.environ
      | {'SLURM_JOB_ID': '17', 'PATH': f'{folder}:{os.environ["PATH"]}'},
      capture_output=True,
      text=True,
      timeout=30,
    )
    said += done.stderr
    if len(requeued.read_text().splitlines()) <= number:
      break
  assert set(requeued.read_text().splitlines()) <= {'requeue 17'}
  assert not (folder / 'jaxagent-17.at_once').exists()
  requeued.unlink()
  return done.returncode, said, number


def test_a_chain_ends_with_its_run(tmp_path):
  done = _run('slurm', '--dry_run', *NEEDED['slurm'], '--chain')
  assert (
    '--wrap=exec\\ bash\\ launch_scripts/slurm_chain.sh\\ srun' in done.stdout
  )
  assert _chained(tmp_path, 143, 143, 143, 0)[::2] == (0, 3)


def test_a_chain_asks_a_busy_controller_three_times(tmp_path):
  assert _chained(tmp_path, 143, 0, busy=2)[::2] == (0, 1)
  (tmp_path / 'asked').unlink()
  status, said, requeues = _chained(tmp_path, 143, 0, busy=3, seconds=400)
  assert (status, requeues) == (143, 0) and 'chain: it cannot' in said


def test_a_chain_ends_when_the_run_is_refused(tmp_path):
  assert _chained(tmp_path, 143, 2)[::2] == (2, 1)


def test_a_chain_ends_with_the_second_failure_at_once(tmp_path):
  status, said, requeues = _chained(tmp_path, 137, 75, 0)
  assert (status, requeues) == (75, 1)
  # 1 s where a second of the clock begins meanwhile, more on a busy machine.
  assert re.search(r'status 75 after \d s, 2 times within 300 s each', said)


def test_a_chain_whose_time_limit_leaves_no_room_ends(tmp_path):
  assert _chained(tmp_path, *[143] * 9)[::2] == (143, 4)
  assert _chained(tmp_path, *[143] * 8, 0, seconds=400)[::2] == (0, 8)


def test_a_chain_goes_on_after_failures_that_are_far_apart(tmp_path):
  assert _chained(tmp_path, 1, 143, 1, 0)[::2] == (0, 3)


def test_a_chain_goes_on_after_runs_that_failed_late(tmp_path):
  assert _chained(tmp_path, 1, 1, 1, 0, seconds=400)[::2] == (0, 3)


def _devices(gpus, visible):
  env = {k: v for k, v in os.environ.items() if k != 'CUDA_VISIBLE_DEVICES'}
  if visible is not None:
    env['CUDA_VISIBLE_DEVICES'] = visible
  flags = ['--gpus=' + gpus] if gpus else []
  done = _run('single_node_8gpu', '--dry_run', *flags, env=env)
  if done.returncode:
    return done.stderr
  words = shlex.split(done.stdout)
  mesh = next(w for w in words if 'mesh.fsdp' in w).partition('=')[2]
  return words[1].partition('=')[2], mesh


def test_gpus_that_the_user_has_chosen_are_kept():
  assert _devices('', None) == ('0,1,2,3,4,5,6,7', '8')
  assert _devices('2', None) == ('0,1', '2')
  assert _devices('', '3,5') == ('3,5', '2')
  assert _devices('1', 'GPU-a,GPU-b') == ('GPU-a', '1')
  assert "CUDA_VISIBLE_DEVICES='3,5' names 2" in _devices('3', '3,5')
  assert 'names 0' in _devices('', '')
  assert "--gpus='x' must be" in _devices('x', None)


@pytest.mark.parametrize('name', sorted(NEEDED.keys() - {'k8s_jobset'}))
def test_which_python_runs(name):
  env = {k: v for k, v in os.environ.items() if k != 'VIRTUAL_ENV'}

  def command(*flags, **more):
    needed = [] if name == 'slurm' else NEEDED[name]
    done = _run(name, '--dry_run', *needed, *flags, env=env | more)
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
  assert words[:3] == ['cd', 'jaxagent', '&&']
  assert words[5:8] == ['start', 'env', 'JAXAGENT_CLUSTER=auto']
  # `tests/learner/test_plan.py` has what 16 need; a flag of one's own comes last.
  assert [w for w in words if w.startswith(flag)] == [f'{flag}16', f'{flag}8']


_GCLOUD = """#!/bin/bash
# Workers are folders; a command of ssh runs in each of them, scp copies to them.
echo "$@" >>"$WORKERS/asked"
for argument in "$@"; do
  case "$argument" in
    --worker=all) which="0 1" ;;
    --worker=*) which="${argument#*=}" ;;
    --command=*) command="${argument#*=}" ;;
    /*) file="$argument" ;;
    *:*) target="${argument#*:}" ;;
  esac
done
for worker in $which; do
  cd "$WORKERS/$worker"
  if [ "$4" = scp ]; then cp -p "$file" "$target"; else bash -c "$command"; fi
done
"""


@pytest.fixture
def pod(tmp_path):
  """Runs `tpu_pod.sh` on two workers that are folders of this machine."""
  (tmp_path / 'gcloud').write_text(_GCLOUD)
  (tmp_path / 'gcloud').chmod(0o755)
  for worker in '01':
    scripts = tmp_path / worker / 'jaxagent' / 'launch_scripts'
    scripts.mkdir(parents=True)
    shutil.copy(ROOT / 'launch_scripts' / '_detached.sh', scripts)
  python = tmp_path / 'python'
  python.write_text(
    "#!/bin/bash\ntrap 'echo saved; exit 143' TERM\n"
    'echo "begun with ${TOKEN-no} token"\nwhile :; do sleep 0.05; done\n'
  )
  python.chmod(0o755)
  path = f'{tmp_path}:{os.environ["PATH"]}'
  flags = [*NEEDED['tpu_pod'], f'--python={python}']

  def do(verb, *more, **env):
    env = os.environ | {'WORKERS': str(tmp_path), 'PATH': path} | env
    return _run('tpu_pod', verb, *flags, *more, env=env)

  do.folder = tmp_path
  yield do
  do('stop')


def _logs(pod):
  return [
    (
      pod.folder / w / 'jaxagent' / f'run.{socket.gethostname()}.log'
    ).read_text()
    for w in '01'
  ]


def _begun(pod):
  end = time.monotonic() + 20
  while not all('begun' in text for text in _logs(pod)):
    assert time.monotonic() < end
    time.sleep(0.05)


def test_a_run_on_tpus_outlives_its_connection_and_starts_once(pod):
  assert 'was never started' in pod('status').stdout
  for number in range(3):  # gcloud tries again where a connection was dropped
    said = pod('start').stdout
    assert said.count('started; log') == (0 if number else 2)
    assert said.count('runs already') == (2 if number else 0)
    _begun(pod)
  assert all(text.count('begun') == 1 for text in _logs(pod))
  assert pod('status').stdout.count('runs (process') == 2
  said = pod('stop').stdout
  assert said.count('stopped;') == 2 and 'ended with status 143' in said
  assert all('saved' in text for text in _logs(pod))
  assert pod('status').stdout.count('does not run; ') == 2
  pod('start')  # and goes on
  assert pod('status').stdout.count('runs (process') == 2


def test_a_secret_reaches_tpus_in_no_command_line(pod):
  said = pod('start', '--env=TOKEN', TOKEN="s3cret 'x'")
  assert said.returncode == 0, said.stderr
  _begun(pod)
  assert all("begun with s3cret 'x' token" in text for text in _logs(pod))
  assert 's3cret' not in (pod.folder / 'asked').read_text() + said.stdout
  pod('start', '--env=TOKEN', TOKEN='s3cret')  # while it runs
  assert not list(pod.folder.glob('*/jaxagent/run*.env'))


@pytest.mark.parametrize('names', ['NOT_SET', 'a-b', 'PATH,', "x'"])
def test_variables_that_tpus_cannot_be_given_are_refused(names):
  done = _run('tpu_pod', '--dry_run', *NEEDED['tpu_pod'], f'--env={names}')
  assert done.returncode == (0 if names == 'PATH,' else 2)
  assert 'is no variable of this shell' in done.stderr or names == 'PATH,'


def test_each_worker_of_a_pod_has_a_log():
  done = _run('tpu_pod', 'logs', '--dry_run', *NEEDED['tpu_pod'], '--worker=3')
  assert '--worker=3' in done.stdout and 'logs' in done.stdout


def test_vllm_of_the_other_kind_is_left_alone(tmp_path):
  mark = tmp_path / '.made-cuda-1'
  mark.touch()
  done = _run('vllm_env', 'cpu', str(tmp_path))
  assert done.returncode == 2 and 'give another FOLDER' in done.stderr
  assert mark.exists()


@pytest.mark.parametrize(
  'given, installed',
  [('-m slurm', True), ('-m=slurm', True), ('-m "not slow"', False)],
)
def test_the_tests_on_slurm_install_it_when_they_are_asked_for(
  given, installed
):
  text = (ROOT / 'launch_scripts/test.sh').read_text()
  start = text.index('if [ -n "${JAXAGENT_TEST_SLURM:-}" ]')
  part = text[start : text.index('\nfi\n', start) + 4]
  env = {k: v for k, v in os.environ.items() if k != 'JAXAGENT_TEST_SLURM'}
  done = subprocess.run(
    ['bash', '-c', f'here=; bash() {{ echo "$@"; }}; set -- {given}; {part}'],
    env=env,
    capture_output=True,
    text=True,
    check=True,
  )
  assert ('install_slurm.sh' in done.stdout) == installed


@pytest.mark.parametrize('kind', ['cpu', 'cuda'])
def test_tests_leave_vllm_for_cuda_alone(tmp_path, kind):
  scripts = {
    'vllm_env.sh': 'echo "$@"',
    'install_chromium.sh': '',
    'trackers_env.sh': 'echo python',
    'install_docker.sh': '',
    'install_slurm.sh': '',
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


def _jobset(*flags):
  done = _run('k8s_jobset', '--dry_run', '--image=r/i:1', *flags)
  assert done.returncode == 0, done.stderr
  return yaml.safe_load(done.stdout)


def _unknown_to_the_api(manifest) -> list[str]:
  """What the API's types refuse in a manifest or would not read."""
  api = pytest.importorskip('kubeflow_trainer_api.models')
  import pydantic

  try:
    read = api.JobsetV1alpha2JobSet.from_dict(manifest)
  except pydantic.ValidationError as error:
    return [str(error)]
  # Types do not say which actions there are.
  actions = {'FailJobSet', 'RestartJobSet', 'RestartJobSetAndIgnoreMaxRestarts'}
  rules = manifest['spec']['failurePolicy']['rules']
  wrong = [f'action {r["action"]}' for r in rules if r['action'] not in actions]
  return wrong + _left_out(manifest, read.to_dict(), '')


def _left_out(given, read, at) -> list[str]:
  if isinstance(given, dict) and isinstance(read, dict):
    return [
      wrong
      for key, value in given.items()
      for wrong in _left_out(value, read.get(key), f'{at}.{key}')
    ]
  if isinstance(given, list) and isinstance(read, list):
    pairs = enumerate(zip(given, read))
    return [w for i, (g, r) in pairs for w in _left_out(g, r, f'{at}[{i}]')]
  same = given == read or str(given) == str(read)
  return [] if same else [f'{at}: {given!r} is read as {read!r}']


def test_the_api_knows_all_that_a_manifest_says():
  flags = ['--secret=keys', '--nodes=3', '--', '--config.seed=1']
  assert _unknown_to_the_api(_jobset(*flags)) == []


@pytest.mark.parametrize(
  'path, value',
  [
    (('backoffLimitPerIndx',), 0),
    (('podFailurePolicy', 'rules', 0, 'action'), 'FailJobs'),
    (('podFailurePolicy', 'rules', 0, 'onExitCodes', 'values'), ['two']),
    (('template', 'spec', 'containers', 0, 'envfrom'), []),
    (('template', 'spec', 'containers', 0, 'resources', 'limit'), {}),
    (('parallelism',), 'three'),
  ],
)
def test_a_manifest_with_a_slip_is_not_what_the_api_knows(path, value):
  manifest = _jobset()
  node = manifest['spec']['replicatedJobs'][0]['template']['spec']
  for key in path[:-1]:
    node = node[key]
  node[path[-1]] = value
  assert _unknown_to_the_api(manifest)


def test_what_a_status_does_to_a_jobset():
  """2 never again; evictions and lost processes free; others counted."""
  spec = _jobset()['spec']
  job = spec['replicatedJobs'][0]['template']['spec']
  (rule,) = spec['failurePolicy']['rules']
  assert rule['action'] == 'FailJobSet'
  assert rule['onJobFailureReasons'] == ['PodFailurePolicy']
  does = {}
  for rule in job['podFailurePolicy']['rules']:
    for code in rule.get('onExitCodes', {}).get('values', ['evicted']):
      does[code] = rule['action']
  assert does == {
    2: 'FailJob',
    errors.LOST: 'Ignore',
    143: 'Ignore',
    'evicted': 'Ignore',
  }
  # An index that fails otherwise fails the job for a reason of its own.
  assert job['backoffLimitPerIndex'] == job['maxFailedIndexes'] == 0
  assert 'backoffLimit' not in job


def test_a_pod_is_the_last_to_be_evicted_and_is_given_its_secrets():
  manifest = _jobset(
    '--cpus=8', '--memory=64Gi', '--gpus=2', '--secret=my-keys'
  )
  pod = manifest['spec']['replicatedJobs'][0]['template']['spec']['template']
  (container,) = pod['spec']['containers']
  asked = container['resources']['requests']
  assert asked == container['resources']['limits']
  assert asked == {'cpu': '8', 'memory': '64Gi', 'nvidia.com/gpu': 2}
  assert container['envFrom'] == [{'secretRef': {'name': 'my-keys'}}]
  for flag in ('--secret=My_keys', '--memory=64', '--memory=x', '--cpus=0'):
    done = _run('k8s_jobset', '--dry_run', '--image=r/i:1', flag)
    assert done.returncode == 2 and flag.partition('=')[0] in done.stderr


@pytest.mark.parametrize(
  'found, asked, said',
  [
    ('', 'get apply', 'log: kubectl logs'),
    ('jaxagent ', 'get', 'runs: nothing done'),
    (
      'jaxagent Failed',
      'get delete apply',
      'has ended (Failed): it is deleted',
    ),
    ('jaxagent Completed', 'get delete apply', 'has ended (Completed)'),
    ('!', 'get', ''),
  ],
)
def test_the_same_command_goes_on(tmp_path, found, asked, said):
  kubectl = tmp_path / 'kubectl'
  kubectl.write_text(
    f'#!/bin/bash\necho "$1" >>{tmp_path}/asked\n'
    f'if [ "$1" = get ]; then printf %s "{found}"; [ "{found}" != "!" ]; exit; fi\n'
    f'[ "$1" != apply ] || cat >{tmp_path}/manifest\n'
  )
  kubectl.chmod(0o755)
  env = os.environ | {'PATH': f'{tmp_path}:{os.environ["PATH"]}'}
  done = _run('k8s_jobset', '--image=r/i:1', env=env)
  assert (done.returncode == 0) == (found != '!'), done.stderr
  assert (tmp_path / 'asked').read_text().split() == asked.split()
  assert said in done.stdout
  if 'apply' in asked:
    manifest = yaml.safe_load((tmp_path / 'manifest').read_text())
    assert manifest['metadata']['name'] == 'jaxagent'


@pytest.mark.parametrize('path', sorted(ROOT.glob('launch_scripts/*.sh')))
def test_shell_syntax(path):
  done = subprocess.run(['bash', '-n', path], capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
