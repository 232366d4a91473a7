"""bitsandbytes: its library of HIP kernels by ctypes, without PyTorch. Blockwise 8-bit and 4-bit quantization, dequantization and
products on a stream, integer products, optimizers, managed memory. Calls that take a stream get one of the client's own; the others use
the null stream, as in the package itself.

The argument lists are those of the package's `backends/cuda/ops.py` (0.50.2).
"""

import ctypes
import importlib.util
import pathlib

import numpy

import runtime
import words
from runtime import Array

ROWS, COLUMNS, BLOCK = 256, 512, 64
COUNT = ROWS * COLUMNS


class Stream:
    """A non-blocking stream. Arrays are uploaded and downloaded on it."""

    def __init__(self):
        self.handle = runtime.stream()

    def array(self, values):
        array = Array(numpy.zeros_like(values))
        runtime.upload(array, values, self.handle)
        return array

    def digest(self, array):
        return words.digest(runtime.download(array, self.handle))


def library():
    """The package's library for HIP 7.2, found without an import of the package, which would ask for PyTorch. Its references to HIP have
    no version and it names no runtime, so HIP must be there for all, as PyTorch loads it."""
    ctypes.CDLL("libamdhip64.so.7", mode=ctypes.RTLD_GLOBAL)
    (folder,) = importlib.util.find_spec("bitsandbytes").submodule_search_locations
    return ctypes.CDLL(str(pathlib.Path(folder) / "libbitsandbytes_rocm72.so"))


def ints(*values):
    return [ctypes.c_int32(value) for value in values]


def floats(*values):
    return [ctypes.c_float(value) for value in values]


def address(array):
    return ctypes.c_void_p(array.data_ptr())


def eight_bits(lib, stream, random):
    """Blocks of 8 bits with a table of values, there and back."""
    table = stream.array(numpy.linspace(-1, 1, 256, dtype=numpy.float32))
    for dtype, suffix in [(numpy.float32, "fp32"), (numpy.float16, "fp16")]:
        source = stream.array(random.standard_normal(COUNT).astype(dtype))
        scales = stream.array(numpy.zeros(COUNT // 256, numpy.float32))
        packed = stream.array(numpy.arange(COUNT).astype(numpy.uint8))
        back = stream.array(numpy.full(COUNT, 3, dtype))
        runtime.synchronize()
        there = [address(array) for array in (table, source, scales, packed)]
        lib["cquantize_blockwise_" + suffix](*there, *ints(256, COUNT))
        runtime.synchronize()
        arrays = [address(array) for array in (table, packed, scales, back)]
        lib["cdequantize_blockwise_" + suffix](*arrays, *ints(256, COUNT), stream.handle)
        print("8 bits,", suffix, *[stream.digest(array) for array in (packed, scales, back)])


def four_bits(lib, stream, random):
    """Blocks of 4 bits, both types, there and back, and a product with packed weights."""
    values = random.standard_normal(COUNT).astype(numpy.float16)
    for kind in ["nf4", "fp4"]:
        source = stream.array(values)
        scales = stream.array(numpy.zeros(COUNT // BLOCK, numpy.float32))
        packed = stream.array(numpy.arange(COUNT // 2).astype(numpy.uint8))
        back = stream.array(numpy.full(COUNT, 5, numpy.float16))
        runtime.synchronize()
        lib["cquantize_blockwise_fp16_" + kind](None, *map(address, (source, scales, packed)), *ints(BLOCK, COUNT))
        runtime.synchronize()
        arrays = map(address, (packed, scales, back))
        lib["cdequantize_blockwise_fp16_" + kind](None, *arrays, *ints(BLOCK, COUNT), stream.handle)
        print("4 bits,", kind, *[stream.digest(array) for array in (packed, scales, back)])
    table = stream.array(numpy.linspace(-1, 1, 16, dtype=numpy.float32))
    row = stream.array(values[:COLUMNS])
    product = stream.array(numpy.full(ROWS, 7, numpy.float16))
    arrays = map(address, (row, packed, scales, table, product))
    sizes, steps = ints(ROWS, 1, COLUMNS), ints(ROWS, COLUMNS // 2, ROWS, BLOCK)
    lib.cgemm_4bit_inference_naive_fp16(*sizes, *arrays, *steps, stream.handle)
    print("4 bits, product", stream.digest(product))


def integers(lib, stream, random):
    """Rows of 8-bit integers, their product by hipBLAS on the null stream, and the scaling back."""
    source = stream.array(random.standard_normal(COUNT).astype(numpy.float16))
    rows = stream.array(numpy.arange(COUNT).astype(numpy.int8))
    scales = stream.array(numpy.zeros(ROWS, numpy.float32))
    lib.cint8_vector_quant(*map(address, (source, rows, scales)), *floats(0), *ints(ROWS, COLUMNS), stream.handle)
    print("integers, rows", stream.digest(rows), stream.digest(scales))
    sums = stream.array(numpy.full(ROWS * ROWS, 9, numpy.int32))
    runtime.synchronize()
    lib.get_context.restype = ctypes.c_void_p
    context = ctypes.c_void_p(lib.get_context())
    transposed = [ctypes.c_bool(True), ctypes.c_bool(False)]
    sizes = ints(ROWS, ROWS, COLUMNS)
    lib.cigemm(context, *transposed, *sizes, *map(address, (rows, rows, sums)), *ints(COLUMNS, COLUMNS, ROWS))
    runtime.synchronize()
    halves = stream.array(numpy.full(ROWS * ROWS, 11, numpy.float16))
    arrays = map(address, (sums, scales, scales, halves))
    lib.cdequant_mm_int32_fp16(*arrays, None, *ints(ROWS, ROWS), stream.handle)
    print("integers, product", stream.digest(sums), stream.digest(halves))


def optimizers(lib, stream, random):
    """A step of Adam with moments of 32 bits, on the null stream."""
    draw = [random.standard_normal(COUNT).astype(numpy.float32) for _ in range(4)]
    gradient, weights, first, second = map(stream.array, draw)
    runtime.synchronize()
    arrays = map(address, (gradient, weights, first, second))
    limits = [None, *floats(0, 0)]
    lib.cadam32bit_grad_fp32(
        *arrays, *limits, *floats(0.9, 0.999, 0, 0, 1e-8, 0.01), *ints(1), *floats(1e-3, 1), ctypes.c_bool(False), *ints(COUNT)
    )
    runtime.synchronize()
    print("Adam", *[stream.digest(array) for array in (weights, first, second)])


def managed(lib, stream, random):
    """Memory that host and device share, filled by the device."""
    lib.cget_managed_ptr.restype = ctypes.c_void_p
    memory = lib.cget_managed_ptr(ctypes.c_size_t(COUNT * 4))
    shared = numpy.frombuffer((ctypes.c_byte * (COUNT * 4)).from_address(memory), numpy.float32)
    shared[:] = random.standard_normal(COUNT).astype(numpy.float32)
    lib.cprefetch(ctypes.c_void_p(memory), ctypes.c_size_t(COUNT * 4), *ints(0))
    lib.cfill_fp32(ctypes.c_void_p(memory), None, *floats(1.5), ctypes.c_int64(COUNT))
    runtime.synchronize()
    print("managed", words.digest(shared))


def main():
    lib, stream = library(), Stream()
    random = numpy.random.default_rng(1)
    for part in [eight_bits, four_bits, integers, optimizers, managed]:
        part(lib, stream, random)
        runtime.step(part.__name__)
    print("last error", runtime.last_error())


main()
