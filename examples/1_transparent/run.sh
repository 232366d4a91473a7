#!/bin/sh
# Runs the program twice under one server: a batch program that comes first, and an urgent one with four times the work.
#
# usage: run.sh PROGRAM [URGENT_PRIORITY [BATCH_PRIORITY]]
#
# xcli and xserver have to be in PATH. In front of it, `gpu-sim run --` gives both programs one simulated GPU.
set -eu
[ $# -ge 1 ] || { echo "usage: run.sh PROGRAM [URGENT_PRIORITY [BATCH_PRIORITY]]" >&2; exit 2; }
program=$1 urgent=${2:-10} batch=${3:-1}

batch() { exec xcli run --strict --priority "$batch" -- "$program" batch 2 10; }
urgent() { exec xcli run --strict --priority "$urgent" -- "$program" urgent 2 40; }

. "$(dirname "$0")/../common.sh"
start_server HPF
two_programs "$urgent" "$batch"
