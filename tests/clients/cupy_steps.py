"""CuPy: copies, elementwise kernels compiled at run time (hiprtc), a matrix product (hipBLAS, rocBLAS), streams, events."""

import cupy
import numpy

import hip


def main():
    host = numpy.arange(1 << 18, dtype=numpy.float32).reshape(512, 512)
    a = cupy.asarray(host)
    print("there and back", hip.digest(cupy.asnumpy(a)) == hip.digest(host))
    # Where a kernel writes is filled before: a device that executes none leaves it so.
    out = cupy.zeros_like(a)
    out.fill(0)
    for _ in range(10):
        cupy.multiply(a, 2, out=out)
        cupy.add(out, a, out=out)
    hip.step("elementwise")
    print("elementwise", hip.digest(cupy.asnumpy(out)))
    product = cupy.asarray(numpy.zeros((512, 512), numpy.float32))
    for _ in range(5):
        cupy.matmul(a, a, out=product)
    hip.step("matrix product")
    print("matrix product", hip.digest(cupy.asnumpy(product)))
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
    hip.step("two streams")
    print("two streams", hip.digest(cupy.asnumpy(out)))
    print("last error", hip.last_error())
    hip.step("results")


main()
