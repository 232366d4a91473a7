#!/bin/sh
# Runs the serving program. It schedules its own streams by the policy HPF, so it needs no server.
#
# usage: run.sh [ARGUMENT OF serve.py...]
#
# xcli has to be in PATH. In front of it, `gpu-sim run --` makes a simulated GPU.
set -eu
exec xcli run --policy HPF -- python3 -B "$(dirname "$0")/serve.py" "$@"
