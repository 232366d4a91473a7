#!/bin/sh
# Runs the serving program, with its worker processes, under a server of its own.
#
# usage: run.sh [ARGUMENT OF workers.py...]
#
# xcli and xserver have to be in PATH. In front of it, `gpu-sim run --` makes a simulated GPU.
set -eu
here=$(dirname "$0")
. "$here/../common.sh"
start_server HPF
xcli run --strict -- python3 -B "$here/workers.py" "$@"
