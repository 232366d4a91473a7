"""A small language model with random weights as a GGUF file, for llama.cpp: the architecture `llama`, some weights in half precision and some
in blocks of 8 bits, and a vocabulary of bytes. The same seed gives the same file.

The format is that of GGUF version 3 (docs/gguf.md of ggml), the names of keys and tensors are those of llama.cpp. Only Python's standard
library is needed: by hand, `python3 gguf.py FILE`.
"""

import os
import random
import struct
import sys

_LAYERS, _WIDTH, _HEADS, _KV_HEADS, _HIDDEN, _CONTEXT = 4, 256, 4, 2, 512, 512
_KV_WIDTH = _WIDTH // _HEADS * _KV_HEADS
_ALIGNMENT = 32
# Types of metadata.
_UINT32, _INT32, _FLOAT32, _STRING, _ARRAY = 4, 5, 6, 8, 9
# Types of tensors: single and half precision, and blocks of 32 integers with a scale in half precision.
_F32, _F16, _Q8_0 = 0, 1, 8
# Types of tokens.
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6


def _text(value):
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _value(kind, value):
    if kind == _STRING:
        return _text(value)
    return struct.pack({_UINT32: "<I", _INT32: "<i", _FLOAT32: "<f"}[kind], value)


def _entry(key, kind, value):
    return _text(key) + struct.pack("<I", kind) + _value(kind, value)


def _list(key, kind, values):
    head = _text(key) + struct.pack("<IIQ", _ARRAY, kind, len(values))
    return head + b"".join(_value(kind, value) for value in values)


def _vocabulary():
    """Text, score and type of each token: the usual three, every byte, and the letters."""
    tokens = [("<unk>", 0.0, _UNKNOWN), ("<s>", 0.0, _CONTROL), ("</s>", 0.0, _CONTROL)]
    tokens += [(f"<0x{byte:02X}>", 0.0, _BYTE) for byte in range(256)]
    # U+2581 is how this vocabulary writes a space.
    letters = ["\u2581"] + [chr(code) for code in range(ord("!"), ord("~") + 1)]
    tokens += [(letter, -float(at), _NORMAL) for at, letter in enumerate(letters)]
    # A width that all kernels like.
    tokens += [(f"w{at}", -1000.0 - at, _NORMAL) for at in range(512 - len(tokens))]
    return tokens


def _metadata(tokens):
    texts, scores, types = zip(*tokens)
    return [
        _entry("general.architecture", _STRING, "llama"),
        _entry("general.name", _STRING, "random"),
        _entry("general.alignment", _UINT32, _ALIGNMENT),
        _entry("llama.block_count", _UINT32, _LAYERS),
        _entry("llama.context_length", _UINT32, _CONTEXT),
        _entry("llama.embedding_length", _UINT32, _WIDTH),
        _entry("llama.feed_forward_length", _UINT32, _HIDDEN),
        _entry("llama.attention.head_count", _UINT32, _HEADS),
        _entry("llama.attention.head_count_kv", _UINT32, _KV_HEADS),
        _entry("llama.attention.layer_norm_rms_epsilon", _FLOAT32, 1e-5),
        _entry("llama.rope.dimension_count", _UINT32, _WIDTH // _HEADS),
        _entry("llama.vocab_size", _UINT32, len(tokens)),
        _entry("tokenizer.ggml.model", _STRING, "llama"),
        _list("tokenizer.ggml.tokens", _STRING, texts),
        _list("tokenizer.ggml.scores", _FLOAT32, scores),
        _list("tokenizer.ggml.token_type", _INT32, types),
        _entry("tokenizer.ggml.unknown_token_id", _UINT32, 0),
        _entry("tokenizer.ggml.bos_token_id", _UINT32, 1),
        _entry("tokenizer.ggml.eos_token_id", _UINT32, 2),
    ]


def _tensors(tokens):
    """Name, type and shape of each; the first dimension is the one whose elements lie side by side."""
    yield "token_embd.weight", _F16, [_WIDTH, tokens]
    yield "output_norm.weight", _F32, [_WIDTH]
    yield "output.weight", _Q8_0, [_WIDTH, tokens]
    for layer in range(_LAYERS):
        for name, kind, shape in [
            ("attn_norm", _F32, [_WIDTH]),
            ("attn_q", _F16, [_WIDTH, _WIDTH]),
            ("attn_k", _F16, [_WIDTH, _KV_WIDTH]),
            ("attn_v", _F16, [_WIDTH, _KV_WIDTH]),
            ("attn_output", _F16, [_WIDTH, _WIDTH]),
            ("ffn_norm", _F32, [_WIDTH]),
            ("ffn_gate", _Q8_0, [_WIDTH, _HIDDEN]),
            ("ffn_up", _Q8_0, [_WIDTH, _HIDDEN]),
            ("ffn_down", _Q8_0, [_HIDDEN, _WIDTH]),
        ]:
            yield f"blk.{layer}.{name}.weight", kind, shape


def _weights(kind, count, source):
    if kind == _Q8_0:
        scale = struct.pack("<e", 0.001)
        return b"".join(scale + source.randbytes(32) for _ in range(count // 32))
    spread = [source.uniform(-0.1, 0.1) for _ in range(count)]
    if kind == _F16:
        return struct.pack(f"<{count}e", *spread)
    # Norms, around one.
    return struct.pack(f"<{count}f", *[1 + value for value in spread])


def _padding(size):
    return b"\0" * (-size % _ALIGNMENT)


def write(path, seed=1):
    """Writes the model. An interrupted run leaves no part of it under this name."""
    source, tokens = random.Random(seed), _vocabulary()
    metadata, infos, data = _metadata(tokens), [], b""
    for name, kind, shape in _tensors(len(tokens)):
        infos.append(_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(data)))
        count = 1
        for size in shape:
            count *= size
        weights = _weights(kind, count, source)
        data += weights + _padding(len(weights))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(metadata)) + b"".join(metadata + infos)
    with open(path + ".part", "wb") as file:
        file.write(head + _padding(len(head)) + data)
    os.replace(path + ".part", path)


def model():
    """The path of the model in the home folder, where the first client makes it."""
    path = os.path.join(os.environ["HOME"], "random.gguf")
    if not os.path.exists(path):
        write(path)
    return path


if __name__ == "__main__":
    write(sys.argv[1])
