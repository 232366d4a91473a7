#!/usr/bin/env python3
"""Measures suspension, resumption and an online request by libgpreempt_poc.so from Python, as measure.hip does, against the
limits of the proof of concept: 5 ms, 10 ms, 50 ms.

usage: gpreempt_poc.py LIBRARY CODE_OBJECT [ROUNDS]

LIBRARY is libgpreempt_poc.so. CODE_OBJECT has the kernels of examples/kernels, compiled by `hipcc --genco`.

The offline program is a child of this process that keeps the GPU busy with kernels of 20 ms and suspends itself when it is
asked to. The online request is a kernel of 1 ms in this process: from the decision to preempt until its result is there.
The program returns 1 if a limit is missed.
"""

import ctypes
import ctypes.util
import os
import signal
import statistics
import struct
import sys
import time

LIMITS_MS = {"suspend": 5, "resume": 10, "online": 50}
OFFLINE_NS, ONLINE_NS = 20_000_000, 1_000_000
# 64 kernels are more than a second of work: enough for all rounds of a measurement is kept ahead.
KERNELS_AHEAD = 64
CODES = {
    -1: "GPREEMPT_EINVAL",
    -2: "GPREEMPT_EPERM",
    -3: "GPREEMPT_ENOTSUP",
    -4: "GPREEMPT_ETIMEDOUT",
    -5: "GPREEMPT_EIO",
    -6: "GPREEMPT_EAGAIN",
}
# What the offline program answers: a code, and how long the call took.
ANSWER = struct.Struct("=id")


def now_ms():
    return time.monotonic_ns() / 1e6


class Device:
    """The default device of this process, with one stream and the kernel `busy`."""

    def __init__(self, code_object):
        # Its name has the number of the version, which ldconfig knows.
        self._hip = ctypes.CDLL(ctypes.util.find_library("amdhip64") or "libamdhip64.so")
        self._stream, module, self._busy = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self._call("hipStreamCreate", ctypes.byref(self._stream))
        self._call("hipModuleLoad", ctypes.byref(module), os.fsencode(code_object))
        self._call("hipModuleGetFunction", ctypes.byref(self._busy), module, b"busy")

    def _call(self, name, *arguments):
        code = getattr(self._hip, name)(*arguments)
        if code != 0:
            text = self._hip.hipGetErrorString
            text.restype = ctypes.c_char_p
            sys.exit(f"{name}: {text(code).decode()}")

    def work(self, nanoseconds):
        """Fills the device for at least so many nanoseconds."""
        duration, rounds = ctypes.c_uint64(nanoseconds), ctypes.c_uint32(1)
        arguments = (ctypes.c_void_p * 2)(ctypes.addressof(duration), ctypes.addressof(rounds))
        grid, block, shared_memory = (4096, 1, 1), (256, 1, 1), 0
        self._call("hipModuleLaunchKernel", self._busy, *grid, *block, shared_memory, self._stream, arguments, None)

    def wait(self):
        self._call("hipStreamSynchronize", self._stream)


def offline(library, code_object, orders, answers):
    """The offline program: keeps kernels ahead, and obeys: 's' suspends, 'r' resumes, 'c' cleans up. Its input's end ends it."""
    calls = {
        b"s": library.gpreempt_poc_suspend,
        b"r": library.gpreempt_poc_resume,
        b"c": library.gpreempt_poc_cleanup,
    }
    code = library.gpreempt_poc_init(0)
    if code == 0:
        device = Device(code_object)
        for _ in range(KERNELS_AHEAD):
            device.work(OFFLINE_NS)
    os.write(answers, ANSWER.pack(code, 0.0))
    while code == 0 and (order := os.read(orders, 1)):
        begin = now_ms()
        result = calls[order](0)
        os.write(answers, ANSWER.pack(result, now_ms() - begin))
        if order == b"r":
            device.work(OFFLINE_NS)


def answer(answers, what):
    """Reads an answer of the offline program: the time of its call."""
    read = os.read(answers, ANSWER.size)
    if len(read) != ANSWER.size:
        sys.exit("the offline program has ended")
    code, ms = ANSWER.unpack(read)
    if code != 0:
        sys.exit(f"{what}: {code} ({CODES.get(code, 'no code of gpreempt_poc.h')})")
    return ms


def measure(device, rounds, orders, answers):
    """The milliseconds of each round, by what they are about."""
    times = {what: [] for what in LIMITS_MS}
    for _ in range(rounds):
        begin = now_ms()
        os.write(orders, b"s")
        times["suspend"].append(answer(answers, "gpreempt_poc_suspend"))
        device.work(ONLINE_NS)
        device.wait()
        times["online"].append(now_ms() - begin)
        os.write(orders, b"r")
        times["resume"].append(answer(answers, "gpreempt_poc_resume"))
        time.sleep(0.003)  # the offline program works on
    return times


def is_met(what, times):
    """Prints a line about these times; true if none of them exceeds the limit."""
    middle, worst, limit = statistics.median_high(times), max(times), LIMITS_MS[what]
    met = worst <= limit
    word = "met" if met else "missed"
    print(f"{what:<10} median {middle:7.3f} ms  longest {worst:7.3f} ms  limit {limit:4} ms: {word}")
    return met


def main(words):
    rounds = words[2] if len(words) > 2 else "20"
    if len(words) not in (2, 3) or not rounds.isdecimal() or int(rounds) < 1:
        print("usage: gpreempt_poc.py LIBRARY CODE_OBJECT [ROUNDS]", file=sys.stderr)
        return 2
    if "libshimhip" not in os.environ.get("LD_PRELOAD", ""):
        # Python has loaded libc before any other library, and the runtime's requests to the driver would go there.
        print("gpreempt_poc.py: hardware queues are not seen: set LD_PRELOAD to libshimhip.so", file=sys.stderr)
        return 2
    library, code_object = ctypes.CDLL(words[0]), words[1]
    orders_out, orders_in = os.pipe()
    answers_out, answers_in = os.pipe()
    child = os.fork()  # before either process uses HIP
    if child == 0:
        os.close(orders_in)
        os.close(answers_out)
        offline(library, code_object, orders_out, answers_in)
        return 1  # not reached in a measurement: the parent ends this process
    os.close(orders_out)
    os.close(answers_in)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    device = Device(code_object)
    device.work(ONLINE_NS)
    device.wait()
    answer(answers_out, "gpreempt_poc_init")
    times = measure(device, int(rounds), orders_in, answers_out)
    os.write(orders_in, b"c")
    answer(answers_out, "gpreempt_poc_cleanup")
    os.kill(child, signal.SIGKILL)  # it would wait for the kernels that it kept ahead
    os.waitpid(child, 0)
    met = [is_met(what, times[what]) for what in LIMITS_MS]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
