#!/usr/bin/env bash
# The batch script of `slurm.sh --chain`: runs a command, and puts its job back into the
# queue until the run is complete or refused. The job keeps its id, log and dependents.
# usage, in a job of SLURM that may be requeued: bash launch_scripts/slurm_chain.sh COMMAND...
# Ends with 0 after a complete run, 2 after a refused one, and with the command's status
# after the second in a row that failed within 300 s. `scancel` ends the chain: its
# SIGTERM ends this shell, too, which that of --signal does not reach.
set -u
AT_ONCE_S=300
failed="jaxagent-$SLURM_JOB_ID.failed_at_once"
"$@"
status=$?
why=""
case "$status" in
  0 | 2) ;;
  143) why="stopped by a signal" ;;
  *)
    why="ended with status $status after $SECONDS s"
    if [ "$SECONDS" -ge "$AT_ONCE_S" ]; then
      rm -f "$failed"
    elif [ -e "$failed" ]; then
      echo "chain: $why, the second time within $AT_ONCE_S s: not started again." >&2
      why=""
    else
      : >"$failed"
    fi
    ;;
esac
[ "$status" = 143 ] && rm -f "$failed"
if [ -z "$why" ]; then
  rm -f "$failed"
  exit "$status"
fi
echo "chain: $why; job $SLURM_JOB_ID goes back into the queue." >&2
scontrol requeue "$SLURM_JOB_ID" || {
  echo "chain: it cannot; start it again with the same command." >&2
  exit "$status"
}
sleep 60 # it is ended meanwhile
exit "$status"
