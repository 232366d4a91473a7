"""Arrays whose contents tell what went over them: a pattern, and in numpy what the project's kernel `mix` does to
one. The simulated device executes `mix` (examples/kernels), so lost, repeated and swapped commands show. Nothing here
uses HIP.
"""

import hashlib
import os

import numpy

_ONES = 0xFFFFFFFFFFFFFFFF


def pattern(seed, count):
    """Words that differ from each other and from those of other seeds."""
    at = numpy.arange(count, dtype=numpy.uint64) + numpy.uint64(seed << 32)
    return _scrambled(at * numpy.uint64(0x9E3779B97F4A7C15))


def mix(to, source, value):
    """What `mix` leaves in `to`."""
    at = numpy.arange(to.size, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
    turned = source << numpy.uint64(17) | source >> numpy.uint64(47)
    return _scrambled(to + turned + numpy.uint64(value & _ONES) + at)


def _scrambled(x):
    x = (x ^ x >> numpy.uint64(30)) * numpy.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> numpy.uint64(27)) * numpy.uint64(0x94D049BB133111EB)
    return x ^ x >> numpy.uint64(31)


def code_object():
    """The file with the kernels, compiled for the device."""
    return os.environ["GIVEWAY_KERNELS"]


def digest(values):
    return hashlib.sha256(numpy.ascontiguousarray(values).tobytes()).hexdigest()[:16]


def verdict(got, want):
    """For printing: the digest of what came back, and whether it is right."""
    wrong = int(numpy.count_nonzero(got != want))
    return f"{digest(got)}, {'right' if wrong == 0 else f'{wrong} of {want.size} words are wrong'}"
