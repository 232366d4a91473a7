#!/usr/bin/env python3
"""Makes the program urgent whose window is active on an X server, and the others as urgent as they were.

usage: active_window.py [--priority N]

The program of a window is the process that its property _NET_WM_PID names, and the processes that this one has started: those
of a terminal are the programs that run in it. Runs until it gets SIGINT or SIGTERM, or the X server ends.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from typing import Any, Optional

from x11 import Display, Gone

#: After so many seconds it is tried again to reach the server, and a program is looked up again that has no queue yet.
RETRY_S = 1.0
#: The hint for a program that shall never run. Only the program itself takes it back.
NEVER = -256


def tell(text: str) -> None:
    print(f"active_window.py: {text}", file=sys.stderr, flush=True)


def xcli(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["xcli", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)


def parent(pid: int) -> int:
    """The parent of a process; 0 if it has none, or is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # "pid (name) state ppid ...", where the name can hold anything.
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def is_within(pid: int, ancestor: int) -> bool:
    """Whether a process is this one, or one that it has started. Nothing is within init, which has started all."""
    while pid > 1:
        if pid == ancestor:
            return True
        pid = parent(pid)
    return False


class Events:
    """The events of xserver: programs that come, and its own end."""

    def __init__(self) -> None:
        command = ["xcli", "events", "--follow", "--json"]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet)
        self._rest = b""

    def fileno(self) -> int:
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def take(self) -> Optional[set[str]]:
        """The words for what has happened; None at the end of the server. Waits until there is something."""
        # Past the buffer, which select does not know.
        part = os.read(self.fileno(), 65536)
        if not part:
            return None
        *lines, self._rest = (self._rest + part).split(b"\n")
        return {json.loads(line)["event"] for line in lines}

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


class Programs:
    """Raises the priority of a program, and takes it back."""

    def __init__(self, priority: int) -> None:
        self._priority = priority
        #: The priorities that the raised queues had before, by process and number of the queue.
        self._before: dict[tuple[int, int], int] = {}
        self._events: Optional[Events] = None
        self._server_answers = True

    def connect(self) -> None:
        """Listens to the server, if it does not yet."""
        if self._events is None:
            self._events = Events()

    def sources(self) -> list[Events]:
        return [self._events] if self._events else []

    def has_news(self) -> bool:
        """Takes the events of the server. True if they can change what is to be done."""
        assert self._events is not None
        events = self._events.take()
        if events is None:
            self._events.end()
            self._events = None
            # Hints from outside end with the server.
            self._before.clear()
            self._miss_server()
        return events is not None and "joined" in events

    def _miss_server(self) -> None:
        if self._server_answers:
            tell(f"xserver does not answer. Trying again every {RETRY_S:g} s.")
        self._server_answers = False

    def raise_only(self, owner: Optional[int]) -> Optional[tuple[int, bool, bool]]:
        """Raises the queues of the programs of a process, and takes all others back.

        Returns how many programs these are, whether all have queues, and whether the server has refused to raise one; None if
        it does not answer.
        """
        listed = xcli("list", "--json")
        if listed.returncode != 0:
            self._miss_server()
            return None
        if not self._server_answers:
            tell("xserver answers again.")
            self._server_answers = True
        clients: list[dict[str, Any]] = json.loads(listed.stdout)["clients"]
        owned = [client for client in clients if owner is not None and is_within(client["pid"], owner)]
        queues = [(client["pid"], queue) for client in clients for queue in client["queues"]]
        priorities = {(pid, queue["queue"]): queue["priority"] for pid, queue in queues}
        wanted = {(client["pid"], queue["queue"]) for client in owned for queue in client["queues"]}
        # The others first: for a moment no program is urgent, and not two.
        for queue in self._before.keys() - wanted:
            # A queue that is gone, or got another priority meanwhile, stays as it is.
            if priorities.get(queue) == self._priority:
                self._hint(queue, self._before[queue])
            del self._before[queue]
        refused = False
        for queue in wanted - self._before.keys():
            if NEVER < priorities[queue] < self._priority:
                # First, so that it is known if a signal comes.
                self._before[queue] = priorities[queue]
                if not self._hint(queue, self._priority):
                    del self._before[queue]
                    refused = True
        return len(owned), all(client["queues"] for client in owned), refused

    def _hint(self, of: tuple[int, int], priority: int) -> bool:
        pid, queue = of
        hinted = xcli("hint", "--pid", str(pid), "-x", str(queue), "--priority", str(priority))
        if hinted.returncode != 0:
            tell(f"queue {queue} of pid {pid} keeps its priority: {hinted.stderr.strip()}")
        return hinted.returncode == 0

    def end(self) -> None:
        """Leaves the priorities as they were."""
        if self._before:
            self.raise_only(None)
        if self._events is not None:
            self._events.end()


class Watch:
    """Watches which window is active."""

    def __init__(self, display: Display, programs: Programs) -> None:
        self._display = display
        self._programs = programs
        self._said = ""
        #: Whether something has to be looked up again after a while.
        self._retry = False

    def run(self) -> None:
        self._display.watch_properties(self._display.root)
        self._apply()
        while True:
            if self._display.atom("_NET_ACTIVE_WINDOW") in self._display.changed():
                self._apply()
                # Events can have come while it waited for the X server's answers.
                continue
            sources = self._programs.sources()
            wait = RETRY_S if self._retry or not sources else None
            ready = select.select([self._display, *sources], [], [], wait)[0]
            if not ready or any(source in ready and self._programs.has_news() for source in sources):
                self._apply()

    def _apply(self) -> None:
        """Gives the program of the active window its priority, and says so if it is something new."""
        self._programs.connect()
        window = self._display.get_number(self._display.root, "_NET_ACTIVE_WINDOW")
        name, owner, effect = self._owner(window)
        raised = self._programs.raise_only(owner)
        self._retry = raised is None or not raised[1]
        if raised is not None and owner is not None:
            effects = {0: "it is no program of the server", 1: "its program goes first"}
            effect = effects.get(raised[0], f"its {raised[0]} programs go first")
            if raised[2]:
                effect = "the server refuses to let it go first"
        said = f"active window: {name}" + (f": {effect}" if effect else "")
        if said != self._said:
            print(said, flush=True)
        self._said = said

    def _owner(self, window: Optional[int]) -> tuple[str, Optional[int], str]:
        """The name of a window, the process that it belongs to, and why none is known."""
        if window is None:
            return "none", None, ""
        title = self._display.get(window, "_NET_WM_NAME") or self._display.get(window, "WM_NAME")
        text = (title or b"").decode(errors="replace")
        name = "".join(letter for letter in text if letter.isprintable()) or hex(window)
        owner = self._display.get_number(window, "_NET_WM_PID")
        machine = self._display.get(window, "WM_CLIENT_MACHINE")
        if owner is None:
            return name, None, "it names no process"
        if machine is not None and machine.decode(errors="replace") != socket.gethostname():
            return name, None, "its program runs on another machine"
        return name, owner, ""


def main() -> None:
    parser = argparse.ArgumentParser(description="makes the program urgent whose window is active")
    parser.add_argument("--priority", type=int, default=100, help="of the program whose window is active (100)")
    arguments = parser.parse_args()
    if not NEVER < arguments.priority <= 255:
        parser.error("--priority is from -255 to 255")
    if shutil.which("xcli") is None:
        sys.exit("xcli is not in PATH: build giveway (`make build`), and add target/release to PATH.")
    try:
        display = Display()
    except Gone:
        sys.exit("active_window.py: the X server that DISPLAY names does not answer.")
    # As SIGINT: what was raised is taken back.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    programs = Programs(arguments.priority)
    try:
        Watch(display, programs).run()
    except KeyboardInterrupt:
        pass
    except Gone:
        sys.exit("active_window.py: the X server has ended. The priorities are as they were before.")
    finally:
        programs.end()


if __name__ == "__main__":
    main()
