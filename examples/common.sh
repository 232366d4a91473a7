# What run.sh of several examples shares, as a part of it. start_server starts xserver, and two_programs a batch and an urgent
# program that write to one pipe: run.sh defines a function `batch` and one `urgent`, each of which becomes one of them.

# Where the server, the pipes and their names are.
folder=$(mktemp -d)
export XSCHED_SOCKET="$folder/xserver.sock"
children=

end() {
  # The children that have ended already are no error.
  for child in $children; do kill "$child" 2>/dev/null || true; done
  rm -rf "$folder"
}
trap end EXIT
trap 'exit 1' HUP INT PIPE TERM

give_up() {
  echo "run.sh: $1" >&2
  exit 1
}

# start_server POLICY [ARGUMENT...]: returns when it answers.
start_server() {
  xserver "$@" 2>"$folder/server.log" &
  server=$!
  children="$children $server"
  until xcli list >/dev/null 2>&1; do
    kill -0 "$server" 2>/dev/null || give_up "xserver has ended: $(cat "$folder/server.log")"
    sleep 0.1
  done
}

# next WORDS: passes on the lines of the programs until one has these words.
next() {
  while read -r line <&3; do
    echo "$line"
    [ "$line" != "$1" ] || return 0
  done
  give_up "the programs have ended before they said \"$1\""
}

# server_knows PRIORITY PRIORITY: returns when the server has a queue of each priority, and two at least.
server_knows() {
  until xcli list | awk -v a="$1" -v b="$2" '
      $1 == "PID" {for (i = 1; i <= NF; i++) if ($i == "PRIO") prio = i}
      prio && $prio == a {as++}
      prio && $prio == b {bs++}
      prio && ($prio == a || $prio == b) {all++}
      END {exit !(as && bs && all > 1)}'; do
    kill -0 "$urgent_process" 2>/dev/null || give_up "the urgent program has ended"
    sleep 0.1
  done
}

# two_programs URGENT_PRIORITY BATCH_PRIORITY
two_programs() {
  mkfifo "$folder/lines" "$folder/batch" "$folder/urgent"
  batch <"$folder/batch" >"$folder/lines" &
  batch_process=$!
  children="$children $batch_process"
  # In the order in which the program's side opens them: each waits for the other side.
  exec 4>"$folder/batch" 3<"$folder/lines"
  next "batch: ready"
  urgent <"$folder/urgent" >"$folder/lines" &
  urgent_process=$!
  children="$children $urgent_process"
  exec 5>"$folder/urgent"
  next "urgent: ready"
  # As long as the server knows of nothing that outranks the batch program, that launches all of its work at once.
  server_knows "$1" "$2"
  # Each begins when it gets a line: the batch program first, and the urgent one when that has submitted all of its tasks.
  echo >&4
  next "batch: 2 tasks submitted"
  echo >&5
  # The pipe ends when both programs have ended.
  while read -r line <&3; do echo "$line"; done
  wait "$batch_process" || give_up "the batch program has failed"
  wait "$urgent_process" || give_up "the urgent program has failed"
}
