#!/usr/bin/env bash
# jax: two clusters can be started at one coordinator address, and take each other's processes.
# One would expect: jax.distributed.initialize of a second process 0 at an address where one
#   listens fails, since the port is taken.
# What happens: both listen at the port (gRPC opens it with SO_REUSEPORT), without a word, and
#   the kernel gives every process that asks there to the one or the other. Clusters of equal
#   size start, with members of each other. SlurmCluster takes the port by the number of the
#   job alone (job % 4096 + 61440), so that all steps of a job have one address, and so have
#   two jobs on one node whose numbers differ by 4096.
# Versions: jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, Python 3.11, Linux x86-64.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import os
import socket
import subprocess
import sys
import time

# usage: PORT NUMBER-OF-THE-PROCESS NAME-OF-ITS-CLUSTER
WORKER = '''
import sys, time, jax
from jax._src import distributed
port, number, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
jax.distributed.initialize(
  f"127.0.0.1:{port}", num_processes=2, process_id=number, initialization_timeout=20
)
client = distributed.global_state.client
if number == 0:
  client.key_value_set("name", name)
print(name, client.blocking_key_value_get("name", 10000), flush=True)
time.sleep(2)
'''
os.environ['JAX_PLATFORMS'] = 'cpu'


def start(port, number, name):
  return subprocess.Popen(
    [sys.executable, '-c', WORKER, str(port), str(number), name],
    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
  )  # fmt: skip


def listening(port):
  """Sockets that listen at a port, of all processes."""
  rows = [
    line.split()
    for name in ('tcp', 'tcp6')
    for line in open(f'/proc/net/{name}').readlines()[1:]
  ]
  return sum(
    int(row[1].split(':')[1], 16) == port and row[3] == '0A' for row in rows
  )


def once():
  """Returns sockets that listened, and (own cluster, cluster that was met) of each."""
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    port = free.getsockname()[1]
  started = [start(port, 0, name) for name in ('a', 'b')]
  end = time.time() + 60
  while (found := listening(port)) < 2 and time.time() < end:
    time.sleep(0.1)
  started += [start(port, 1, name) for name in ('a', 'b')]
  met = [process.communicate(timeout=120)[0].split() for process in started]
  return found, [tuple(pair) for pair in met if pair]


mixed, tries = False, 0
while not mixed and tries < 12:
  tries += 1
  sockets, met = once()
  mixed = ('a', 'b') in met and ('b', 'a') in met
print('sockets that listen at the port:', sockets)
print('process 1 of each cluster has met process 0 of the other:', mixed)

from jax._src.clusters.slurm_cluster import SlurmCluster

for job in ('70123', '74219'):
  os.environ |= {'SLURM_JOB_ID': job, 'SLURM_STEP_NODELIST': 'node7'}
  for step in ('0', '1'):
    os.environ['SLURM_STEP_ID'] = step
    print('job', job, 'step', step, SlurmCluster.get_coordinator_address(None, None))
PY
recorded <<'SEEN'
sockets that listen at the port: 2
process 1 of each cluster has met process 0 of the other: True
job 70123 step 0 node7:61931
job 70123 step 1 node7:61931
job 74219 step 0 node7:61931
job 74219 step 1 node7:61931
SEEN
