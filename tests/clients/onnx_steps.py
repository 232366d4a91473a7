"""The five steps of a user with ONNX Runtime's ROCm provider: a tensor operation, a matrix product, a convolution (MIOpen), a
small model, ResNet-18; weights are random and made here.
"""

import numpy
import onnxruntime

import runtime
import words
from onnx import Model

RUNS = 3


def tensor_operation(random):
    model = Model(random, 1 << 16)
    product = model.node("Mul", "x", model.weight(1 << 16))
    return model.bytes(model.node("Relu", model.node("Add", product, model.weight(1 << 16))), 1 << 16)


def matrix_product(random):
    model = Model(random, 256, 256)
    return model.bytes(model.node("MatMul", "x", model.weight(256, 256)), 256, 256)


def conv(model, x, channels, filters, size, stride=1):
    """A convolution that leaves the size of the image as it is, but for its stride."""
    weight = model.weight(filters, channels, size, size)
    return model.node(
        "Conv", x, weight, kernel_shape=[size] * 2, strides=[stride] * 2, pads=[size // 2] * 4, dilations=[1, 1], group=1
    )


def convolution(random):
    model = Model(random, 8, 3, 64, 64)
    return model.bytes(conv(model, "x", 3, 16, 3), 8, 16, 64, 64)


def small_model(random):
    model = Model(random, 512, 512)
    hidden = model.node("Relu", model.node("Gemm", "x", model.weight(512, 256), model.weight(256)))
    return model.bytes(model.node("Gemm", hidden, model.weight(256, 10), model.weight(10)), 512, 10)


def resnet18(random):
    model = Model(random, 1, 3, 224, 224)

    def normalized(x, channels):
        mean, scale = model.weight(channels), model.weight(channels)
        variance = model.weight(channels, low=0.5)
        return model.node("BatchNormalization", x, scale, model.weight(channels), mean, variance, epsilon=1e-5)

    def block(x, channels, filters, stride):
        y = model.node("Relu", normalized(conv(model, x, channels, filters, 3, stride), filters))
        y = normalized(conv(model, y, filters, filters, 3), filters)
        if channels != filters:
            x = normalized(conv(model, x, channels, filters, 1, stride), filters)
        return model.node("Relu", model.node("Add", y, x))

    x = model.node("Relu", normalized(conv(model, "x", 3, 64, 7, 2), 64))
    x = model.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for filters in [64, 128, 256, 512]:
        x = block(x, channels, filters, 1 if filters == 64 else 2)
        x = block(x, filters, filters, 1)
        channels = filters
    x = model.node("Flatten", model.node("GlobalAveragePool", x), axis=1)
    return model.bytes(model.node("Gemm", x, model.weight(512, 1000), model.weight(1000)), 1, 1000)


def main():
    onnxruntime.set_default_logger_severity(3)
    # What a session has made stays until its work has been looked at.
    sessions = []
    for step in [tensor_operation, matrix_product, convolution, small_model, resnet18]:
        random = numpy.random.default_rng(1)
        session = onnxruntime.InferenceSession(step(random), providers=["ROCMExecutionProvider"])
        sessions.append(session)
        (source,) = session.get_inputs()
        x = random.standard_normal(source.shape, numpy.float32)
        for _ in range(RUNS):
            (y,) = session.run(None, {"x": x})
        # On the simulated device, which executes no kernel that it does not know, what was there before.
        print(step.__name__, session.get_providers()[0], y.shape, words.digest(y))
        runtime.step(step.__name__)
    print("last error", runtime.last_error())


main()
