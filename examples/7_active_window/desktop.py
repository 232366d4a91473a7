#!/usr/bin/env python3
"""Stands in for a desktop: creates windows, and says which one is active, as a window manager does by _NET_ACTIVE_WINDOW.

usage: desktop.py

Obeys the lines of its input, says `done` behind each, and ends with its input:

    window TITLE [PID [MACHINE]]     a window, of this process if there is a PID
    active TITLE                     this window is active, even if it is gone
    none                             no window is active
    destroy TITLE                    destroys this window; what is active remains as it was
"""

from __future__ import annotations

import socket
import sys

from x11 import CARDINAL, STRING, WINDOW, Display, Gone


def main() -> None:
    display = Display()
    windows: dict[str, int] = {}
    for line in sys.stdin:
        order, *words = line.split()
        if order == "window":
            title, *process = words
            window = windows[title] = display.create_window()
            display.set_text(window, "_NET_WM_NAME", display.atom("UTF8_STRING"), title)
            if process:
                machine = process[1] if len(process) > 1 else socket.gethostname()
                display.set_text(window, "WM_CLIENT_MACHINE", STRING, machine)
                display.set_numbers(window, "_NET_WM_PID", CARDINAL, int(process[0]))
        elif order == "destroy":
            display.destroy_window(windows[words[0]])
        else:
            active = windows[words[0]] if order == "active" else 0
            display.set_numbers(display.root, "_NET_ACTIVE_WINDOW", WINDOW, active)
        display.flush()
        print("done", flush=True)


if __name__ == "__main__":
    try:
        main()
    except Gone:
        sys.exit("desktop.py: the X server that DISPLAY names does not answer")
