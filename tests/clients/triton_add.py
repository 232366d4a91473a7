"""A Triton kernel compiled for the device, loaded and launched: all that Triton asks of HIP it gets by hipGetProcAddress.

PyTorch, which Triton takes its arrays and streams from, is not to be had for ROCm where this runs, so both are made here.
"""

import numpy
import triton
import triton.language as tl
from triton.backends.amd.driver import HIPDriver, HIPLauncher, HIPUtils

import runtime
import words


class Driver(HIPDriver):
    """Triton's own driver without PyTorch: the default stream of the first device."""

    def __init__(self):
        self.utils = HIPUtils()
        self.launcher_cls = HIPLauncher

    def get_current_device(self):
        return 0

    def set_current_device(self, device):
        pass

    def get_current_stream(self, device):
        return 0


@triton.jit
def add(a, b, c, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    tl.store(c + at, tl.load(a + at, inside) + tl.load(b + at, inside), inside)


def main():
    triton.runtime.driver.set_active(Driver())
    size = 100_000
    host = numpy.arange(size, dtype=numpy.float32)
    a, b, c = runtime.Array(host), runtime.Array(host * 2), runtime.Array(numpy.zeros_like(host))
    for _ in range(20):
        kernel = add[(triton.cdiv(size, 1024),)](a, b, c, size, block=1024)
        # Its launches look at the last error at once.
        assert runtime.last_error() == 0
    runtime.step("add")
    print("compiled for", kernel.metadata.target.arch)
    print("operands", words.digest(a.numpy()), words.digest(b.numpy()))
    # The sum, or on the simulated device, which executes no kernel it does not know, what was there before.
    print("result", words.digest(c.numpy()))
    print("last error", runtime.last_error())
    runtime.step("results")


main()
