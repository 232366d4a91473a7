"""What the workers of programs/soak.py run: two models with a chain of kernels for each request.

The words of a model depend on every request before and on their order, and each request has a copy of them as its result.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
from collections import deque
from dataclasses import dataclass
from typing import Any, Optional

import hip

import giveway

#: How many requests of one model may be submitted at a time.
AHEAD = 4
WORDS = 16
_MASK = 2**64 - 1
START = (0,) * WORDS


@dataclass(frozen=True)
class Kind:
    """A model: how many kernels a request has before its result, and how long each takes."""

    name: str
    kernels: int
    microseconds: int

    def part(self, number: int, stream: hip.Stream) -> giveway.Scope:
        """The hints of a request, in turn."""
        if self.name == "urgent":
            if number % 2:
                return giveway.priority(10, stream=stream)
            return giveway.latency_critical(slo_ms=20, priority=10, stream=stream)
        return giveway.best_effort(priority=1, stream=stream)


KINDS = (Kind("urgent", 2, 200), Kind("batch", 4, 1000))


def step(words: tuple[int, ...], value: int) -> tuple[int, ...]:
    """What the kernel `mix` makes of the words: gw_mix_step of examples/kernels, with one word as both operands."""
    after = []
    for index, word in enumerate(words):
        x = (word + ((word << 17 | word >> 47) & _MASK) + value + index * 0x9E3779B97F4A7C15) & _MASK
        x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ x >> 27) * 0x94D049BB133111EB) & _MASK
        after.append(x ^ x >> 31)
    return tuple(after)


def words_of(result: bytes) -> tuple[int, ...]:
    return tuple(int.from_bytes(result[at : at + 8], "little") for at in range(0, len(result), 8))


class Model:
    """A model on a stream of its own."""

    def __init__(self, kind: Kind, kernels: hip.Kernels) -> None:
        self.kind = kind
        self._kernels = kernels
        self._stream = hip.Stream()
        self._words = hip.Memory(WORDS * 8)
        self._words.fill(0, self._stream.cuda_stream)
        self._stream.synchronize()
        self._slots = [(hip.Pinned(WORDS * 8), hip.Event()) for _ in range(AHEAD)]

    def submit(self, number: int, values: list[int]) -> None:
        """Submits a request, and waits for nothing. It has one value, unless a fault is wanted."""
        result, end = self._slots[number % AHEAD]
        with self.kind.part(number, self._stream):
            for _ in range(self.kind.kernels):
                length = [ctypes.c_uint64(self.kind.microseconds * 1000), ctypes.c_uint32(1)]
                self._kernels.launch("busy", 64, 64, length, self._stream)
            for value in values:
                words = ctypes.c_void_p(self._words.place.value)
                mix = [words, words, ctypes.c_uint32(WORDS), ctypes.c_uint64(value)]
                self._kernels.launch("mix", 1, WORDS, mix, self._stream)
            hip.copy_to_host(result, self._words, self._stream)
            end.record(self._stream)

    def result(self, number: int) -> bytes:
        result, end = self._slots[number % AHEAD]
        end.wait()
        return result.bytes()

    def serve(self, requests: Any, fault: Optional[str]) -> None:
        """Answers the requests of a connection, in order, until one is None."""
        submitted: deque[int] = deque()
        faulty = Faulty(fault)
        more = True
        while more or submitted:
            if more and len(submitted) < AHEAD and (not submitted or requests.poll()):
                request = requests.recv()
                if request is None:
                    more = False
                else:
                    number, value = request
                    self.submit(number, faulty.values(number, value))
                    submitted.append(number)
                continue
            number = submitted.popleft()
            requests.send((number, self.result(number)))


#: The request that a wanted fault begins with, and the faults.
FAULT_AT = 8
FAULTS = ("error", "lost", "reordered", "wrong")
#: By how much the value of a request differs from that of the one before.
VALUE_STEP = 0x9E3779B97F4A7C15


def value_of(first: int, number: int) -> int:
    return (first + number * VALUE_STEP) & _MASK


class Faulty:
    """Makes one fault that a soak has to find, or none."""

    def __init__(self, fault: Optional[str]) -> None:
        self._fault = fault

    def values(self, number: int, value: int) -> list[int]:
        """The values that the device gets for this request."""
        if self._fault == "reordered" and number in (FAULT_AT, FAULT_AT + 1):
            return [value_of(value, 1 if number == FAULT_AT else -1)]
        if number == FAULT_AT:
            if self._fault == "error":
                raise RuntimeError("the error that was wanted")
            if self._fault == "lost":
                return []
            if self._fault == "wrong":
                return [value ^ 1]
        return [value]


# Of <linux/kfd_ioctl.h>: AMDKFD_IOC_RUNTIME_ENABLE, whose argument is r_debug, mode_mask and capabilities_mask.
_RUNTIME_ENABLE = 0xC0104B25
_EBUSY = 16


def permit_suspensions() -> None:
    """Enables what `xcli suspend` needs, as ROCr does from 5.5 on. Before the first stream."""
    argument = (0).to_bytes(8, "little") + (1).to_bytes(4, "little") + bytes(4)
    # It stays open, because a driver may forget a process without a descriptor.
    device = os.open("/dev/kfd", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(device, _RUNTIME_ENABLE, bytearray(argument))
    except OSError as error:
        if error.errno != _EBUSY:
            raise
