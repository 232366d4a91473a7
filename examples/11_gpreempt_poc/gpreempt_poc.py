#!/usr/bin/env python3
"""Measures suspension, resumption and an online request by libgpreempt_poc.so from Python, as measure.hip does, against the
limits of the proof of concept: 5 ms, 10 ms, 50 ms. No offline kernel may be done while the offline program is suspended.

usage: gpreempt_poc.py LIBRARY CODE_OBJECT [ROUNDS [--not-suspended]]

LIBRARY is libgpreempt_poc.so. CODE_OBJECT has the kernels of examples/kernels, compiled by `hipcc --genco`.

The offline program is a child of this process that keeps the GPU busy with kernels of 20 ms and suspends itself when it is
asked to. The online request is a kernel of 1 ms in this process: from the decision to preempt until its result is there.
With --not-suspended nothing is suspended, and each round lasts until an offline kernel is done. The program returns 1 if a limit
is missed, or if an offline kernel was done while the child was suspended.
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
# What the offline program answers: a code, how long the call took, and how many of its kernels were done before the order was
# obeyed (b"r"), or after that (all others).
ANSWER = struct.Struct("=idI")


def now_ms():
    return time.monotonic_ns() / 1e6


class Device:
    """The default device of this process, with one stream and the kernel `busy`."""

    def __init__(self, code_object):
        # Its name has the number of the version, which ldconfig knows.
        self._hip = ctypes.CDLL(ctypes.util.find_library("amdhip64") or "libamdhip64.so")
        self._stream, module = ctypes.c_void_p(), ctypes.c_void_p()
        self._busy, self._busy_store = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("hipStreamCreate", ctypes.byref(self._stream))
        self._call("hipModuleLoad", ctypes.byref(module), os.fsencode(code_object))
        self._call("hipModuleGetFunction", ctypes.byref(self._busy), module, b"busy")
        self._call("hipModuleGetFunction", ctypes.byref(self._busy_store), module, b"busy_store")
        # Memory of the host that the device reaches.
        word, self._word = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("hipHostMalloc", ctypes.byref(word), ctypes.c_size_t(8), 0)
        self._call("hipHostGetDevicePointer", ctypes.byref(self._word), word, 0)
        self._numbers, self._submitted = ctypes.c_uint64.from_address(word.value), 0
        self._numbers.value = 0

    def _call(self, name, *arguments):
        code = getattr(self._hip, name)(*arguments)
        if code != 0:
            text = self._hip.hipGetErrorString
            text.restype = ctypes.c_char_p
            sys.exit(f"{name}: {text(code).decode()}")

    def work(self, nanoseconds):
        """Fills the device for at least so many nanoseconds."""
        self._launch(self._busy, ctypes.c_uint64(nanoseconds), ctypes.c_uint32(1))

    def _launch(self, function, *values):
        arguments = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        grid, block, shared_memory = (4096, 1, 1), (256, 1, 1), 0
        self._call("hipModuleLaunchKernel", function, *grid, *block, shared_memory, self._stream, arguments, None)

    def wait(self):
        self._call("hipStreamSynchronize", self._stream)

    def numbered_work(self, nanoseconds):
        """The same. Each kernel stores its number at its end, which needs no thread of the runtime: what is suspended
        stores nothing.
        """
        self._submitted += 1
        number = ctypes.c_uint64(self._submitted)
        self._launch(self._busy_store, self._word, number, ctypes.c_uint64(nanoseconds), ctypes.c_uint32(1))

    def done(self):
        """How many of the numbered kernels are done."""
        return self._numbers.value

    def do_one_more(self, nanoseconds):
        self.numbered_work(nanoseconds)  # so that there is one
        before = self.done()
        while self.done() == before:
            time.sleep(0.0005)


def offline(library, code_object, orders, answers):
    """The offline program: keeps kernels ahead, and obeys: 's' suspends, 'r' resumes, 'n' neither, 'w' waits until one more
    kernel is done, 'c' cleans up. Its input's end ends it.
    """
    code, device = library.gpreempt_poc_init(0), None
    if code == 0:
        device = Device(code_object)
        for _ in range(KERNELS_AHEAD):
            device.numbered_work(OFFLINE_NS)
    os.write(answers, ANSWER.pack(code, 0.0, 0))
    calls = {
        b"s": library.gpreempt_poc_suspend,
        b"r": library.gpreempt_poc_resume,
        b"n": lambda _: 0,
        b"w": lambda _: device.do_one_more(OFFLINE_NS) or 0,
        b"c": library.gpreempt_poc_cleanup,
    }
    while code == 0 and (order := os.read(orders, 1)):
        before = device.done()
        begin = now_ms()
        result = calls[order](0)
        took = now_ms() - begin
        os.write(answers, ANSWER.pack(result, took, before if order == b"r" else device.done()))
        if order == b"r":
            device.numbered_work(OFFLINE_NS)


def answer(answers, what):
    """Reads an answer of the offline program: the time of its call, and the kernels that were done."""
    read = os.read(answers, ANSWER.size)
    if len(read) != ANSWER.size:
        sys.exit("the offline program has ended")
    code, ms, done = ANSWER.unpack(read)
    if code != 0:
        sys.exit(f"{what}: {code} ({CODES.get(code, 'no code of gpreempt_poc.h')})")
    return ms, done


def measure(device, rounds, orders, answers, suspends):
    """The milliseconds of each round, by what they are about, and in how many rounds no kernel was done."""
    times, kept_back = {what: [] for what in LIMITS_MS}, 0
    for _ in range(rounds):
        begin = now_ms()
        os.write(orders, b"s" if suspends else b"n")
        ms, before = answer(answers, "gpreempt_poc_suspend")
        times["suspend"].append(ms)
        device.work(ONLINE_NS)
        device.wait()
        times["online"].append(now_ms() - begin)
        os.write(orders, b"r" if suspends else b"w")
        ms, after = answer(answers, "gpreempt_poc_resume")
        times["resume"].append(ms)
        kept_back += before == after
        time.sleep(0.003)  # the offline program works on
    return times, kept_back


def is_met(what, times):
    """Prints a line about these times; true if none of them exceeds the limit."""
    middle, worst, limit = statistics.median_high(times), max(times), LIMITS_MS[what]
    met = worst <= limit
    word = "met" if met else "missed"
    print(f"{what:<10} median {middle:7.3f} ms  longest {worst:7.3f} ms  limit {limit:4} ms: {word}")
    return met


def main(words):
    rounds = words[2] if len(words) > 2 else "20"
    suspends = len(words) < 4
    if len(words) not in (2, 3, 4) or not rounds.isdecimal() or int(rounds) < 1 or words[3:] not in ([], ["--not-suspended"]):
        print("usage: gpreempt_poc.py LIBRARY CODE_OBJECT [ROUNDS [--not-suspended]]", file=sys.stderr)
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
    times, kept_back = measure(device, int(rounds), orders_in, answers_out, suspends)
    os.write(orders_in, b"c")
    answer(answers_out, "gpreempt_poc_cleanup")
    os.kill(child, signal.SIGKILL)  # it would wait for the kernels that it kept ahead
    os.waitpid(child, 0)
    met = [is_met(what, times[what]) for what in LIMITS_MS]
    met.append(kept_back == int(rounds))
    word = "met" if met[-1] else "missed"
    print(f"offline    no kernel done while suspended in {kept_back} of {rounds} rounds: {word}")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
