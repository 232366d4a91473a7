"""What the clients with CuPy and the kernel `mix` share. It loads HIP, so import it after the last fork."""

import ctypes

import cupy
import numpy

import words

_mix = None


def launch_mix(stream, to, source, value):
    """`mix` over arrays of words on the device."""
    global _mix
    if _mix is None:
        _mix = cupy.RawModule(path=words.code_object()).get_function("mix")
    blocks = ((to.size + 255) // 256,)
    _mix(blocks, (256,), (to, source, numpy.uint32(to.size), numpy.uint64(value)), stream=stream)


def pinned(count):
    """An array of words in pinned memory."""
    memory = cupy.cuda.alloc_pinned_memory(count * 8)
    return numpy.frombuffer(memory, numpy.uint64, count)


def upload(stream, device, host):
    device.data.copy_from_host_async(ctypes.c_void_p(host.ctypes.data), host.nbytes, stream)


def download(stream, host, device):
    device.data.copy_to_host_async(ctypes.c_void_p(host.ctypes.data), host.nbytes, stream)
