#!/usr/bin/env bash
# The batch script of `slurm.sh --chain`: runs a command, and puts its job back into the
# queue until the run is complete or refused. The job keeps its id, log and dependents.
# usage, in a job of SLURM that may be requeued: bash launch_scripts/slurm_chain.sh COMMAND...
# Ends with 0 after a complete run, 2 after a refused one, and with the command's status
# after the second in a row that failed within 300 s, or the fifth that was stopped so
# soon: a time limit that is shorter than an update gets nowhere. `scancel` ends the
# chain: its SIGTERM ends this shell, too, which that of --signal does not reach.
set -u
AT_ONCE_S=300 MOST_FAILED=2 MOST_STOPPED=5
counts="jaxagent-$SLURM_JOB_ID.at_once"
"$@"
status=$?
case "$status" in
  0 | 2)
    rm -f "$counts"
    exit "$status"
    ;;
  143) kind=stopped most=$MOST_STOPPED ;;
  *) kind=failed most=$MOST_FAILED ;;
esac
why="$kind with status $status after $SECONDS s"
if [ "$SECONDS" -ge "$AT_ONCE_S" ]; then
  rm -f "$counts"
else
  # In a row, and of one kind: a line each.
  [ "$(head -n 1 "$counts" 2>/dev/null)" = "$kind" ] || rm -f "$counts"
  echo "$kind" >>"$counts"
  times="$(wc -l <"$counts")"
  if [ "$times" -ge "$most" ]; then
    echo "chain: $why, $times times within $AT_ONCE_S s each: not started again." >&2
    rm -f "$counts"
    exit "$status"
  fi
fi
echo "chain: $why; job $SLURM_JOB_ID goes back into the queue." >&2
for pause_s in 5 20 0; do # a controller may be busy, or restarting
  if scontrol requeue "$SLURM_JOB_ID"; then
    sleep 60 # it is ended meanwhile
    exit "$status"
  fi
  sleep "$pause_s"
done
echo "chain: it cannot; start it again with the same command." >&2
exit "$status"
