"""Unit tests of a library, compiled with GoogleTest: their verdicts one by one, and the exit code. What a failed test says is left out,
and so are times: on the simulated device, which executes no kernel of the library, tests of results fail natively too.

    gtest.py PROGRAM [ARGUMENT...]
"""

import re
import subprocess
import sys

# `[       OK ] Suite.Name (12 ms)`, `[  FAILED  ] Suite.Name/0, where GetParam() = 7 (1 ms)`. The summary at the end has no time.
_VERDICT = re.compile(r"\[\s*(OK|FAILED|SKIPPED)\s*\] ([^\s,]+).*\(\d+ ms\)")
_BEGUN = re.compile(r"\[\s*RUN\s*\] (\S+)")


def main():
    tests = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, errors="replace")
    running, counts = None, {}
    for line in tests.stdout:
        if begun := _BEGUN.search(line):
            running = begun[1]
        # What a program of HIP prints may stand in front of it on the same line.
        elif verdict := _VERDICT.search(line):
            counts[verdict[1]] = counts.get(verdict[1], 0) + 1
            print(verdict[1], verdict[2], flush=True)
            running = None
        else:
            print(line, end="", file=sys.stderr)
    if running is not None:
        print("ENDED IN", running)
    print("counts", *[f"{count} {verdict}" for verdict, count in sorted(counts.items())])
    print("the tests' exit code", tests.wait())


main()
