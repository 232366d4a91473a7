"""hip-python, AMD's bindings: memory, fills, pinned copies, two streams with events, a kernel from a file and one
that hiprtc compiles, with the right results; and errors, as return values.
"""

import ctypes

import numpy
from hip import hip, hiprtc

import steps
import words

COUNT, ROUNDS = 1 << 14, 8
# As the project's kernel, whose name the simulated device knows.
SOURCE = b"""
extern "C" __global__ void vector_add(const float *a, const float *b, float *c, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
"""


def ask(answer):
    """What a call returns behind its error, which it must not have."""
    error, *rest = answer
    if int(error) != 0:
        raise RuntimeError(str(error))
    return rest[0] if len(rest) == 1 else rest


def pinned(count, dtype):
    """A pinned array, and the pointer to free."""
    size = count * numpy.dtype(dtype).itemsize
    memory = ask(hip.hipHostMalloc(size, 0))
    return numpy.frombuffer((ctypes.c_byte * size).from_address(int(memory)), dtype), memory


def launch(function, stream, count, *arguments):
    block = hip.dim3(x=256)
    grid = hip.dim3(x=(count + 255) // 256)
    ask(
        hip.hipModuleLaunchKernel(
            function, *grid, *block, sharedMemBytes=0, stream=stream, kernelParams=None, extra=arguments
        )
    )


def compiled(arch):
    """The code object of SOURCE."""
    program = ask(hiprtc.hiprtcCreateProgram(SOURCE, b"vector_add", 0, None, None))
    ask(hiprtc.hiprtcCompileProgram(program, 1, [b"--offload-arch=" + arch]))
    code = bytearray(ask(hiprtc.hiprtcGetCodeSize(program)))
    ask(hiprtc.hiprtcGetCode(program, code))
    ask(hiprtc.hiprtcDestroyProgram(program.createRef()))
    return code


def two_streams():
    """Each stream's kernels read what the other has made before; only events keep the order. Returns what to free."""
    mix = ask(hip.hipModuleGetFunction(ask(hip.hipModuleLoad(words.code_object().encode())), b"mix"))
    streams = [ask(hip.hipStreamCreateWithFlags(hip.hipStreamNonBlocking)) for _ in range(2)]
    events = [ask(hip.hipEventCreateWithFlags(hip.hipEventDisableTiming)) for _ in range(2)]
    size = COUNT * 8
    arrays = [ask(hip.hipMalloc(size)) for _ in range(2)]
    (host, first), (back, second) = pinned(COUNT, numpy.uint64), pinned(COUNT, numpy.uint64)
    host[:] = words.pattern(7, COUNT)
    ask(hip.hipMemcpyAsync(arrays[0], first, size, hip.hipMemcpyKind.hipMemcpyHostToDevice, streams[0]))
    ask(hip.hipMemsetAsync(arrays[1], 0x5A, size, streams[0]))
    want = [host.copy(), numpy.full(size, 0x5A, numpy.uint8).view(numpy.uint64)]
    for round in range(ROUNDS):
        this, other = round % 2, (round + 1) % 2
        arguments = (arrays[this], arrays[other], ctypes.c_uint(COUNT), ctypes.c_uint64(round))
        launch(mix, streams[this], COUNT, *arguments)
        ask(hip.hipEventRecord(events[this], streams[this]))
        ask(hip.hipStreamWaitEvent(streams[other], events[this], 0))
        want[this] = words.mix(want[this], want[other], round)
    ask(hip.hipMemcpyAsync(second, arrays[0], size, hip.hipMemcpyKind.hipMemcpyDeviceToHost, streams[0]))
    ask(hip.hipStreamSynchronize(streams[0]))
    print("two streams:", words.verdict(back, want[0]))
    steps.done("two streams")
    return arrays, events, streams, (first, second)


def free(arrays, events, streams, pinned_memory):
    for array in arrays:
        ask(hip.hipFree(array))
    for event in events:
        ask(hip.hipEventDestroy(event))
    for stream in streams:
        ask(hip.hipStreamDestroy(stream))
    for memory in pinned_memory:
        ask(hip.hipHostFree(memory))


def at_run_time():
    properties = hip.hipDeviceProp_t()
    ask(hip.hipGetDeviceProperties(properties, 0))
    arch = properties.gcnArchName.split(b":")[0]
    add = ask(hip.hipModuleGetFunction(ask(hip.hipModuleLoadData(compiled(arch))), b"vector_add"))
    a, b = (numpy.arange(COUNT, dtype=numpy.float32) * factor for factor in (1, 3))
    got = numpy.empty_like(a)
    arrays = [ask(hip.hipMalloc(a.nbytes)) for _ in range(3)]
    for array, values in zip(arrays, (a, b)):
        ask(hip.hipMemcpy(array, values, a.nbytes, hip.hipMemcpyKind.hipMemcpyHostToDevice))
    launch(add, None, COUNT, *arrays, ctypes.c_uint(COUNT))
    ask(hip.hipMemcpy(got, arrays[2], a.nbytes, hip.hipMemcpyKind.hipMemcpyDeviceToHost))
    print("compiled at run time for", arch.decode() + ":", words.verdict(got, a + b))
    steps.done("compiled at run time")


def errors():
    for answer in (hip.hipMalloc(1 << 60), hip.hipMemcpy(0, 0, 16, hip.hipMemcpyKind.hipMemcpyHostToDevice)):
        print("refused:", answer[0].name)
    print("last error:", hip.hipGetLastError()[0].name)


def main():
    # A stream's numbers go with it, and whoever watches adds them up.
    kept = two_streams()
    at_run_time()
    free(*kept)
    errors()


main()
