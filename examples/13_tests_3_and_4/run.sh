#!/bin/sh
# Runs tests 3 and 4 under a server of its own, with the policy HPF.
#
# usage: run.sh [ARGUMENT OF tests_3_and_4.py...]
#
# xcli and xserver have to be in PATH. In front of it, `gpu-sim run --` makes a simulated GPU.
set -eu
here=$(dirname "$0")
. "$here/../common.sh"
start_server HPF
python3 -B "$here/tests_3_and_4.py" "$@"
