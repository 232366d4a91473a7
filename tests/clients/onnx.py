"""Models for ONNX Runtime, written by hand as the protocol buffers that they are: nothing has to be downloaded or installed."""

import struct

FLOAT = 1
_OPSET = 17


def _field(number, value):
    """A field of a protocol buffer: a number, a float, or bytes or text."""

    def varint(n):
        out = bytearray()
        n &= (1 << 64) - 1
        while n > 0x7F:
            out.append(n & 0x7F | 0x80)
            n >>= 7
        return bytes(out) + bytes([n])

    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def _attribute(name, value):
    """An attribute of a node: a float, a number or numbers."""
    if isinstance(value, float):
        return _field(1, name) + _field(2, value) + _field(20, 1)
    if isinstance(value, int):
        return _field(1, name) + _field(3, value) + _field(20, 2)
    return _field(1, name) + b"".join(_field(8, one) for one in value) + _field(20, 7)


def _value_info(name, shape):
    dimensions = b"".join(_field(1, _field(1, size)) for size in shape)
    return _field(1, name) + _field(2, _field(1, _field(1, FLOAT) + _field(2, dimensions)))


class Model:
    """A graph that grows by a node at a time; every node has one output, which is named after it."""

    def __init__(self, random, *shape):
        """`random` gives the weights, `shape` is that of the one input, `x`."""
        self._random = random
        self._input = _value_info("x", shape)
        self._nodes, self._weights = [], []

    def weight(self, *shape, low=-1.0, high=1.0):
        """A tensor of random numbers."""
        name = f"w{len(self._weights)}"
        values = self._random.uniform(low, high, shape).astype("float32")
        tensor = b"".join(_field(1, size) for size in shape) + _field(2, FLOAT) + _field(8, name)
        self._weights.append(tensor + _field(9, values.tobytes()))
        return name

    def node(self, operation, *inputs, **attributes):
        """A node; says the name of its output."""
        name = f"n{len(self._nodes)}"
        node = b"".join(_field(1, one) for one in inputs) + _field(2, name) + _field(4, operation)
        node += b"".join(_field(5, _attribute(key, value)) for key, value in attributes.items())
        self._nodes.append(node)
        return name

    def bytes(self, output, *shape):
        """The model with this output of this shape."""
        graph = b"".join(_field(1, node) for node in self._nodes) + _field(2, "graph")
        graph += b"".join(_field(5, tensor) for tensor in self._weights)
        graph += _field(11, self._input) + _field(12, _value_info(output, shape))
        return _field(1, 9) + _field(7, graph) + _field(8, _field(1, "") + _field(2, _OPSET))
