#!/bin/sh
# Runs two programs with a window each beside one server, on an X server of its own, and makes one window after the other active.
#
# usage: run.sh PROGRAM [--unwatched]
#
# With --unwatched nothing watches the windows. xcli, xserver, Xvfb and python3 have to be in PATH. In front of it,
# `gpu-sim run --` gives both programs one simulated GPU.
set -eu
case $#${2:-} in 1 | 2--unwatched) ;; *) echo "usage: run.sh PROGRAM [--unwatched]" >&2; exit 2 ;; esac
program=$1 watched=${2:-yes}
here=$(dirname "$0")
. "$here/../common.sh"
command -v Xvfb >/dev/null || give_up "Xvfb is missing: \`make deps\` installs it (package xvfb)"

start_server HPF
mkfifo "$folder/display" "$folder/desktop" "$folder/lines" "$folder/left" "$folder/right"
Xvfb -displayfd 1 -screen 0 640x480x24 >"$folder/display" 2>"$folder/x.log" &
children="$children $!"
# The number comes when the X server is ready.
read -r number <"$folder/display" || give_up "Xvfb has ended: $(cat "$folder/x.log")"
export DISPLAY=":$number"
python3 -B "$here/desktop.py" <"$folder/desktop" >"$folder/desktop.log" &
children="$children $!"
exec 6>"$folder/desktop"

# Both programs have the same priority.
program() { exec xcli run --strict --priority 1 -- "$program" "$1"; }
program left <"$folder/left" >"$folder/lines" &
left_process=$! urgent_process=$!
# In the order in which the program's side opens them: each waits for the other side.
exec 4>"$folder/left" 3<"$folder/lines"
next "left: ready"
program right <"$folder/right" >"$folder/lines" &
right_process=$!
children="$children $left_process $right_process"
exec 5>"$folder/right"
next "right: ready"
echo "window left $left_process" >&6
echo "window right $right_process" >&6
if [ "$watched" = yes ]; then
  python3 -B "$here/active_window.py" >"$folder/lines" &
  watch=$!
  children="$children $watch"
  next "active window: none"
fi

# round ACTIVE OTHER: the other program gets its work first, and less of it.
round() {
  echo "active $1" >&6
  if [ "$watched" = yes ]; then
    next "active window: $1: its program goes first"
    server_knows 100 1
  else
    server_knows 1 1
  fi
  work "$2" 10
  next "$2: 2 tasks submitted"
  work "$1" 40
  for _ in left right; do
    while read -r line <&3 && echo "$line" && [ "${line#*: }" != "task 2 of 2 done" ]; do :; done
  done
}
work() { case $1 in left) echo "$2" >&4 ;; right) echo "$2" >&5 ;; esac; }

round left right
round right left
if [ "$watched" = yes ]; then
  echo none >&6
  next "active window: none"
  server_knows 1 1
  # Before the server ends.
  kill "$watch"
  wait "$watch" || give_up "active_window.py has failed"
fi
exec 4>&- 5>&-
wait "$left_process" || give_up "the left program has failed"
wait "$right_process" || give_up "the right program has failed"
