"""`python -m giveway run [OPTIONS] SCRIPT ARGUMENTS`, and xcli's other commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ._programs import become

_USAGE = """\
usage: python -m giveway run [OPTIONS OF xcli run] [--] SCRIPT [ARGUMENTS]
       python -m giveway run [OPTIONS OF xcli run] [--] -m MODULE [ARGUMENTS]
       python -m giveway doctor|list|top|policy|...        (a command of xcli)

`run` becomes `xcli run OPTIONS -- python SCRIPT ARGUMENTS` with this interpreter.
`python -m giveway run --help` lists the options.
"""

# The options of `xcli run` without a value. Every other one takes the next word, unless its value follows in the same word.
_ALONE = {"--strict", "--gpu-sim", "-h", "--help"}


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separates the options of `xcli run` from the script and its arguments."""
    index = 0
    while index < len(words):
        word = words[index]
        if word == "--":
            return list(words[:index]), list(words[index + 1 :])
        if not word.startswith("-") or word == "-" or word.startswith(("-m", "-c")):
            break
        glued = "=" in word if word.startswith("--") else len(word) > 2
        index += 1 if word in _ALONE or glued else 2
    return list(words[:index]), list(words[index:])


def main() -> int:
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help", "help"):
        print(_USAGE, end="")
        return 0 if words else 2
    if words[0] != "run":
        return become("xcli", words)
    options, script = split(words[1:])
    if not script and any(option in ("-h", "--help") for option in options):
        return become("xcli", ["run", "--help"])
    if not script:
        print(f"giveway: there is no script to run\n{_USAGE}", end="", file=sys.stderr)
        return 2
    return become("xcli", ["run", *options, "--", sys.executable, *script])


if __name__ == "__main__":
    sys.exit(main())
