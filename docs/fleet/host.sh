#!/bin/bash
# Runs tiller's daemon and gateway until SIGTERM. Then the host takes no more tasks, finishes those
# that run, and ends. If it is killed before, its tasks become unknown, or run again with --retry.
set -u

name=$(uname -n)
name=${name%%.*}
if [ ${#name} -gt 32 ]; then
    name=host-${name: -20} # the end of a pod's name differs from those of other pods
fi
export TILLER_FLEET__NAME=${TILLER_FLEET__NAME:-$name}
name=$TILLER_FLEET__NAME
drained=$TILLER_HOME/drained-at-the-end
stopping=

is_busy() { # whether the fleet says that this host works on a task
    tiller fleet ls --json | grep -F "\"name\":\"$name\"" | grep -qv '"tasks":0}'
}

trap 'stopping=yes' TERM INT
tiller daemon run </dev/null &
daemon=$!
until tiller daemon status >/dev/null 2>&1; do
    kill -0 "$daemon" 2>/dev/null || exit 1
    sleep 0.2
done
if [ -e "$drained" ]; then
    tiller fleet drain "$name" --undo && rm "$drained"
fi
tiller gateway </dev/null &
gateway=$!
wait -n "$daemon" "$gateway" # until one ends, or a signal comes
status=$?
if [ "$stopping" ]; then
    status=0
    if tiller fleet drain "$name"; then
        touch "$drained"
        sleep 1
        while is_busy; do sleep 1; done
    fi
fi
kill "$gateway" "$daemon" 2>/dev/null
wait
exit "$status"
