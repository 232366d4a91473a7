"""What the clients share: steps, at which the test looks at the counts, and memory of the device for clients that bring
none, by ctypes on the HIP runtime. By hand a client is run with `</dev/null`.
"""

import ctypes
import os

import numpy

import steps

_hip = ctypes.CDLL("libamdhip64.so.7")
_HOST_TO_DEVICE, _DEVICE_TO_HOST = 1, 2
_NON_BLOCKING = 1


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


def stream():
    """A non-blocking stream."""
    handle = ctypes.c_void_p()
    check(_hip.hipStreamCreateWithFlags(ctypes.byref(handle), _NON_BLOCKING), "hipStreamCreateWithFlags")
    return handle


def upload(array, values, stream):
    """Copies pageable memory to an array on a stream."""
    source = values.ctypes.data_as(ctypes.c_void_p)
    _copy_async(ctypes.c_void_p(array.data_ptr()), source, values.nbytes, _HOST_TO_DEVICE, stream)


def download(array, stream):
    """Copies an array on a stream, and waits for the stream."""
    values = numpy.empty(array.size, array.type)
    to, source = values.ctypes.data_as(ctypes.c_void_p), ctypes.c_void_p(array.data_ptr())
    _copy_async(to, source, values.nbytes, _DEVICE_TO_HOST, stream)
    check(_hip.hipStreamSynchronize(stream), "hipStreamSynchronize")
    return values


def _copy_async(to, source, size, kind, stream):
    check(_hip.hipMemcpyAsync(to, source, ctypes.c_size_t(size), kind, stream), "hipMemcpyAsync")


def register(values):
    """Pins memory that is there already. CuPy's own call for it does not reach HIP."""
    check(_hip.hipHostRegister(values.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(values.nbytes), 0), "hipHostRegister")


def synchronize():
    check(_hip.hipDeviceSynchronize(), "hipDeviceSynchronize")


def step(name):
    """Ends a step: waits for the device, and then for the test, which looks at the counts and answers by a line."""
    synchronize()
    _tell_observed()
    steps.done(name)


def _tell_observed():
    """Prints what the observer has seen so far, if there is one: packets (tests/programs/launch/packets_tool.cpp), or calls
    (tests/programs/loading/audit_calls.cpp). An observer that has seen nothing is not there."""
    tool, calls = os.environ.get("HSA_TOOLS_LIB"), os.environ.get("GIVEWAY_AUDIT")
    if tool is not None:
        # ROCr has loaded it, under this path.
        packets = ctypes.CDLL(tool, mode=os.RTLD_NOW | os.RTLD_NOLOAD).packets_seen()
        if packets == 0:
            raise RuntimeError("the tool has seen no packet")
        print("packets that launch a kernel:", packets)
    if calls is not None:
        seen = numpy.fromfile(calls, numpy.uint64)
        if not seen.any():
            raise RuntimeError("the auditor has seen no call")
        print("calls that the auditor saw:", *seen)


def last_error():
    return _hip.hipGetLastError()
