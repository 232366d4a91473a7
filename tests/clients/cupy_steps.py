"""CuPy: copies, elementwise kernels compiled at run time (hiprtc), a matrix product (hipBLAS, rocBLAS), streams, events."""

import cupy
import numpy

import runtime
import words


def main():
    host = numpy.arange(1 << 18, dtype=numpy.float32).reshape(512, 512)
    a = cupy.asarray(host)
    print("there and back", words.digest(cupy.asnumpy(a)) == words.digest(host))
    # Where a kernel writes is filled before: a device that executes none leaves it so.
    out = cupy.zeros_like(a)
    out.fill(0)
    for _ in range(10):
        cupy.multiply(a, 2, out=out)
        cupy.add(out, a, out=out)
    runtime.step("elementwise")
    print("elementwise", words.digest(cupy.asnumpy(out)))
    product = cupy.asarray(numpy.zeros((512, 512), numpy.float32))
    for _ in range(5):
        cupy.matmul(a, a, out=product)
    runtime.step("matrix product")
    print("matrix product", words.digest(cupy.asnumpy(product)))
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    event = cupy.cuda.Event()
    with streams[0]:
        cupy.add(a, 1, out=out)
        event.record()
    streams[1].wait_event(event)
    with streams[1]:
        cupy.add(out, 1, out=out)
    for stream in streams:
        stream.synchronize()
    runtime.step("two streams")
    print("two streams", words.digest(cupy.asnumpy(out)))
    print("last error", runtime.last_error())
    runtime.step("results")


main()
