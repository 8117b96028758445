#!/usr/bin/env bash
# Two SLURM nodes on one machine: a network, host name and mounts of their own each, one
# munged, one slurmctld, two slurmd. For root, with the packages of install_slurm.sh.
# usage: bash tests/launch/slurm_nodes.sh up|down DIR; then SLURM_CONF=DIR/slurm.conf sbatch
set -euo pipefail
what="$1" dir="$(mkdir -p "$2" && cd "$2" && pwd)"
export SLURM_CONF="$dir/slurm.conf"
ended() { # PIDFILE: ends one process that this script started
  if [ -s "$1" ]; then kill "$(cat "$1")" 2>/dev/null || true; fi
}
if [ "$what" = down ]; then
  scancel --full --state=RUNNING,PENDING --user=root 2>/dev/null || true
  sleep 2
  for name in slurmd.n1 slurmd.n2 slurmctld munged; do ended "$dir/$name.pid"; done
  # What a job has left runs in the networks of the nodes, which nobody else has.
  for node in n1 n2; do
    network="$(readlink "/proc/$(cat "$dir/hold.$node.pid")/ns/net" || true)"
    [ -n "$network" ] && [ "$network" != "$(readlink /proc/self/ns/net)" ] || continue
    for process in /proc/[0-9]*; do
      [ "$(readlink "$process/ns/net" 2>/dev/null)" != "$network" ] ||
        kill -KILL "${process#/proc/}" 2>/dev/null || true
    done
  done
  # Those of the nodes, too: a network outlives its processes by its open connections.
  for link in jaxslurm1 jaxslurm2 jaxslurm; do
    ip link del "$link" 2>/dev/null || true
  done
  exit 0
fi
mkdir -p "$dir"/{state,spool.n1,spool.n2,log}
printf '127.0.0.1 localhost\n10.77.0.254 head\n10.77.0.1 n1\n10.77.0.2 n2\n' >"$dir/hosts"
cat >"$dir/slurm.conf" <<END
ClusterName=two
SlurmctldHost=$(hostname)(10.77.0.254)
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=bf_interval=5,sched_interval=5
KillWait=30
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=60
NodeName=n[1-2] NodeAddr=10.77.0.[1-2] CPUs=$(nproc) RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
END
if [ ! -f "$dir/munge.key" ]; then
  dd if=/dev/urandom of="$dir/munge.key" bs=128 count=1 status=none
fi
chmod 600 "$dir/munge.key"
munged --force --socket="$dir/munge.socket" --key-file="$dir/munge.key" \
  --pid-file="$dir/munged.pid" --log-file="$dir/log/munged.log" \
  --seed-file="$dir/munge.seed" >/dev/null 2>&1 </dev/null
ip link add jaxslurm type bridge
ip addr add 10.77.0.254/24 dev jaxslurm
ip link set jaxslurm up
for i in 1 2; do
  rm -f "$dir/hold.n$i.pid"
  unshare --net --uts --mount bash -c "
    hostname n$i; mount --bind '$dir/hosts' /etc/hosts
    echo \$\$ >'$dir/hold.n$i.pid'; exec sleep infinity" >/dev/null 2>&1 </dev/null &
  until [ -s "$dir/hold.n$i.pid" ]; do sleep 0.1; done
  pid="$(cat "$dir/hold.n$i.pid")"
  ip link add "jaxslurm$i" type veth peer name eth0 netns "$pid"
  ip link set "jaxslurm$i" master jaxslurm up
  nsenter -t "$pid" -n ip addr add "10.77.0.$i/24" dev eth0
  nsenter -t "$pid" -n ip link set eth0 up
  nsenter -t "$pid" -n ip link set lo up
  nsenter -t "$pid" -n ip route add default via 10.77.0.254
done
slurmctld -c >/dev/null 2>&1 </dev/null
for n in n1 n2; do
  nsenter -t "$(cat "$dir/hold.$n.pid")" -n -u -m slurmd >/dev/null 2>&1 </dev/null
done
for _ in $(seq 30); do
  [ "$(sinfo -h -o %T)" = idle ] && exit 0
  sleep 1
done
sinfo
exit 1
