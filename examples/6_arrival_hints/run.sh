#!/bin/sh
# Runs the program beside a server with the policy LCBE.
#
# usage: run.sh PROGRAM [announced|unannounced]
#
# xcli and xserver have to be in PATH. In front of it, `gpu-sim run --` makes a simulated GPU.
set -eu
[ $# -ge 1 ] || { echo "usage: run.sh PROGRAM [announced|unannounced]" >&2; exit 2; }

. "$(dirname "$0")/../common.sh"
# The device is cleared 100 ms before an announced request, and stays clear for 100 ms if the request is late: longer than a
# batch kernel of 40 ms, and than a busy machine is late. Each such window has to fit into what may be lost of 10 s
# (waste-percent). The requests come regularly, and the server is not to learn that: the announcement is to be the reason.
start_server LCBE --set lead-us=100000 --set grace-us=100000 --set waste-percent=20 --set learn=0
"$@"
