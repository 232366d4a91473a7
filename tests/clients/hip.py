"""What the clients share: steps, which whoever watches looks at; memory of the device for clients that bring none, by ctypes on
the HIP runtime; and one way of printing memory. By hand a client is run with `</dev/null`.
"""

import ctypes
import hashlib
import sys

import numpy

_hip = ctypes.CDLL("libamdhip64.so.7")
_HOST_TO_DEVICE, _DEVICE_TO_HOST = 1, 2


def check(code, what):
    if code != 0:
        raise RuntimeError(f"{what} failed with {code}")


class Array:
    """A one-dimensional array on the device, as Triton takes one: an address and a type."""

    def __init__(self, values):
        self.size, self.type = values.size, values.dtype
        self.dtype = str(values.dtype)
        self._address = ctypes.c_void_p()
        check(_hip.hipMalloc(ctypes.byref(self._address), ctypes.c_size_t(values.nbytes)), "hipMalloc")
        self._copy(self._address, values.ctypes.data_as(ctypes.c_void_p), values.nbytes, _HOST_TO_DEVICE)

    def _copy(self, to, source, size, kind):
        check(_hip.hipMemcpy(to, source, ctypes.c_size_t(size), kind), "hipMemcpy")

    def data_ptr(self):
        return self._address.value

    def numpy(self):
        values = numpy.empty(self.size, self.type)
        self._copy(values.ctypes.data_as(ctypes.c_void_p), self._address, values.nbytes, _DEVICE_TO_HOST)
        return values


def synchronize():
    check(_hip.hipDeviceSynchronize(), "hipDeviceSynchronize")


def step(name):
    """The end of a step: when the device is done with it, whoever watches looks, and says so by a line of input."""
    synchronize()
    print("step", name, flush=True)
    sys.stdin.readline()


def last_error():
    return _hip.hipGetLastError()


def digest(values):
    return hashlib.sha256(numpy.ascontiguousarray(values).tobytes()).hexdigest()[:16]
