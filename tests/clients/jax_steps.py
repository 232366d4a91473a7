"""JAX on every device there is: copies to it and back, kernels that XLA compiles, a matrix product, and from the first device to the last."""

import os

# Three quarters of the device's memory otherwise, and measured kernels, which differ from run to run.
os.environ.update(JAX_PLATFORMS="rocm", XLA_PYTHON_CLIENT_PREALLOCATE="false", XLA_FLAGS="--xla_gpu_autotune_level=0")

import jax  # noqa: E402
import numpy  # noqa: E402

import runtime  # noqa: E402
import words  # noqa: E402


@jax.jit
def scaled(a, b):
    return a * 2 + b


@jax.jit
def product(a, b):
    return a @ b


def main():
    devices = jax.devices()
    print("devices", len(devices))
    host = numpy.arange(1 << 14, dtype=numpy.float32).reshape(128, 128)
    for number, device in enumerate(devices):
        a = jax.device_put(host, device)
        b = jax.device_put(host + 1, device)
        print(f"device {number}, there and back", words.verdict(numpy.asarray(b), host + 1))
        for _ in range(5):
            # On a device that executes no kernel that it does not know, what is in `c` says nothing.
            c = scaled(a, b)
        c = product(a, c)
        c.block_until_ready()
        print(f"device {number}, results", c.shape, c.dtype)
        runtime.step(f"device {number}")
    moved = jax.device_put(jax.device_put(host, devices[0]), devices[-1])
    print("from the first to the last", words.verdict(numpy.asarray(moved), host))
    print("last error", runtime.last_error())
    runtime.step("moved")


main()
