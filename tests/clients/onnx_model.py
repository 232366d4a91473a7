"""ONNX Runtime's ROCm provider: a model of one matrix product and one activation, with weights made here."""

import numpy
import onnxruntime

import hip

FLOAT, SIZE = 1, 256


def field(number, value):
    """A field of a protocol buffer: a number, or bytes, or text."""

    def varint(n):
        out = bytearray()
        while n > 0x7F:
            out.append(n & 0x7F | 0x80)
            n >>= 7
        return bytes(out) + bytes([n])

    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def value_info(name):
    dimensions = b"".join(field(1, field(1, SIZE)) for _ in range(2))
    return field(1, name) + field(2, field(1, field(1, FLOAT) + field(2, dimensions)))


def node(operation, inputs, output):
    return b"".join(field(1, name) for name in inputs) + field(2, output) + field(4, operation)


def model(weights):
    tensor = field(1, SIZE) * 2 + field(2, FLOAT) + field(8, "w") + field(9, weights.tobytes())
    nodes = [node("MatMul", ["x", "w"], "h"), node("Relu", ["h"], "y")]
    graph = b"".join(field(1, one) for one in nodes) + field(2, "graph") + field(5, tensor)
    graph += field(11, value_info("x")) + field(12, value_info("y"))
    return field(1, 9) + field(7, graph) + field(8, field(1, "") + field(2, 17))


def main():
    random = numpy.random.default_rng(1)
    x, w = (random.standard_normal((SIZE, SIZE), numpy.float32) for _ in range(2))
    onnxruntime.set_default_logger_severity(3)
    session = onnxruntime.InferenceSession(model(w), providers=["ROCMExecutionProvider"])
    print("providers", session.get_providers())
    for _ in range(5):
        (y,) = session.run(["y"], {"x": x})
    # On the simulated device, which executes no kernel that it does not know, what was there before.
    print("output", y.shape, hip.digest(y))


main()
