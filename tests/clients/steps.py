"""Steps, which whoever watches looks at. Nothing here uses HIP."""

import sys


def done(name):
    """The end of a step, with the device done too: whoever watches looks, and says so by a line of input."""
    print("step", name, flush=True)
    sys.stdin.readline()
