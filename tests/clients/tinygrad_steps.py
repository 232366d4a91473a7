"""tinygrad with its device HIP: kernels that it makes and compiles itself (comgr), all on the null stream, and
synchronous copies.
"""

import os

import numpy

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
# It looks for ROCm in /opt/rocm otherwise.
os.environ.update(
    DEV="HIP",
    HIP_PATH=f"{LIBRARIES}/libamdhip64.so.7",
    COMGR_PATH=f"{LIBRARIES}/libamd_comgr.so.3",
    COMGR_3_PATH=f"{LIBRARIES}/libamd_comgr.so.3",
)

from tinygrad import Device, Tensor  # noqa: E402

import runtime  # noqa: E402
import words  # noqa: E402


def main():
    random = numpy.random.default_rng(1)
    a, b = (Tensor(random.standard_normal((64, 64), numpy.float32)).realize() for _ in range(2))
    print("device", Device.DEFAULT)
    print("there and back", words.digest(a.numpy()), words.digest(b.numpy()))
    # A device that executes no kernel that it does not know leaves what was there.
    for _ in range(5):
        a.assign(a * 2 + b).realize()
    runtime.step("elementwise")
    print("elementwise", words.digest(a.numpy()))
    for _ in range(3):
        b.assign(a @ b).realize()
    runtime.step("matrix product")
    print("matrix product", words.digest(b.numpy()))
    print("last error", runtime.last_error())
    runtime.step("results")


main()
