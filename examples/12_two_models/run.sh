#!/bin/sh
# Runs two models under a server of its own: alone, together without scheduling, and together under the policy HPF.
#
# usage: run.sh [ARGUMENT OF two_models.py...]
#
# xcli and xserver have to be in PATH. In front of it, `gpu-sim run --` makes a simulated GPU.
set -eu
here=$(dirname "$0")
. "$here/../common.sh"
start_server HPF
python3 -B "$here/two_models.py" "$@"
