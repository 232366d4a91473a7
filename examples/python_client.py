"""What the Python examples share: a client of the GPU, and models that run on it.

If PyTorch for ROCm is installed, a model is a network of torchvision, or a chain of matrix products. Otherwise the client
calls HIP by ctypes, and a model is the sequence of kernels that examples/traces has recorded of it: each kernel is `busy` of
examples/kernels, with the recorded grid and time. A client has these functions:

    stream()            a stream, as giveway takes it
    model(name, stream) a model of examples/traces, such as "resnet18_bs1"; with a third argument, a batch so many times as large
    step(stream)        50 ms of work that fills the device, as a model

and a model has `submit`, which returns a `Completion`, and `check`.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import math
import os
import sys
from pathlib import Path
from typing import Any, Optional

TRACES = Path(__file__).resolve().parent / "traces"
BUILD = "hipcc --genco --offload-arch=gfx90a examples/kernels/giveway_kernels.hip -o kernels.co"

Model = Any
Client = Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kernels", default="kernels.co", metavar="FILE", help="code object of examples/kernels (kernels.co)")
    parser.add_argument("--client", choices=["auto", "hip", "pytorch"], default="auto", help="PyTorch if it is installed (auto)")


def connect(arguments: argparse.Namespace) -> Client:
    """Returns the client. It uses the GPU from now on, so a process that forks others must not call this before."""
    torch = None if arguments.client == "hip" else _torch_for_rocm()
    if arguments.client == "pytorch" and torch is None:
        sys.exit("PyTorch for ROCm is not installed, or finds no GPU. Install it, or leave out --client pytorch.")
    return HipClient(arguments.kernels) if torch is None else TorchClient(torch)


def import_giveway() -> Any:
    """Returns the package, which has to be there and to have an effect."""
    try:
        import giveway
    except ImportError:
        sys.exit("The package giveway is missing: set PYTHONPATH=python/src, or install the wheel (docs/python.md).")
    if not giveway.active():
        sys.exit("The library of giveway is not loaded: start the program as the README beside it says.")
    return giveway


def percentile(values: list[float], percent: float) -> float:
    """The smallest value that is not below this percentage of all values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def _recorded(name: str) -> list[dict[str, Any]]:
    commands: list[dict[str, Any]] = json.loads((TRACES / f"{name}.json").read_text(encoding="utf-8"))["commands"]
    return commands


def device_ms(name: str, scale: int = 1) -> float:
    """The time of the device that one inference of a recorded model takes."""
    return float(sum(command["duration_us"] for command in _recorded(name)) * scale / 1e3)


# HIP by ctypes.

_LIBRARIES = ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so")
_NON_BLOCKING_STREAM = 1
# Whoever waits for an event sleeps, and leaves the processor to others.
_EVENT_FLAGS = 1 | 2
_NOT_READY = 600
# What AMD's work-groups can have. Recorded kernels can have more.
_MOST_SHARED_BYTES = 64 * 1024
# Each inference ends with a kernel that changes so many words, by its number: see HipModel.check.
_WORDS = 64
_STEP_KERNELS, _STEP_KERNEL_MS = 10, 5
_STEP_BLOCK = 256
# hipDeviceAttributeMultiprocessorCount, by hip_runtime_api.h of HIP 5.2.3.
_COMPUTE_UNITS = 63


class HipClient:
    label = "client: HIP by ctypes"

    def __init__(self, code_object: str) -> None:
        self._hip = _load_hip()
        count = ctypes.c_int()
        if self._hip.hipGetDeviceCount(ctypes.byref(count)) != 0 or count.value == 0:
            sys.exit("HIP finds no GPU. `gpu-sim run --` in front of the command, as root, makes a simulated one.")
        if not os.path.isfile(code_object):
            sys.exit(f"{code_object} is missing. Build it: {BUILD}\nOr name another file by --kernels.")
        module = ctypes.c_void_p()
        self.call("hipSetDevice", 0)
        try:
            self.call("hipModuleLoad", ctypes.byref(module), os.fsencode(code_object))
        except RuntimeError as error:
            sys.exit(f"{code_object}: {error}. Build it for this GPU, whose architecture rocminfo shows: {BUILD}")
        self._functions = {name: self._function(module, name) for name in (b"busy", b"mix")}
        units = ctypes.c_int()
        self.call("hipDeviceGetAttribute", ctypes.byref(units), _COMPUTE_UNITS, 0)
        self._units = units.value

    def _function(self, module: ctypes.c_void_p, name: bytes) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        self.call("hipModuleGetFunction", ctypes.byref(function), module, name)
        return function

    def call(self, name: str, *arguments: object) -> None:
        code = getattr(self._hip, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name}: HIP reports error {code} ({self._hip.hipGetErrorString(code).decode()})")

    def is_done(self, event: ctypes.c_void_p) -> bool:
        code = self._hip.hipEventQuery(event)
        if code not in (0, _NOT_READY):
            raise RuntimeError(f"hipEventQuery: HIP reports error {code}")
        return bool(code == 0)

    def stream(self) -> HipStream:
        place = ctypes.c_void_p()
        self.call("hipStreamCreateWithFlags", ctypes.byref(place), _NON_BLOCKING_STREAM)
        return HipStream(place)

    def at_once(self, block: int, shared_bytes: int) -> int:
        """How many work-groups of `busy` fit on the device."""
        per_unit = ctypes.c_int()
        busy = self._functions[b"busy"]
        name = "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor"
        self.call(name, ctypes.byref(per_unit), busy, block, shared_bytes)
        return max(1, per_unit.value * self._units)

    def launch(self, name: bytes, grid: list[int], block: list[int], shared_bytes: int, values: list[Any]) -> _Launch:
        return _Launch(self._functions[name], grid, block, shared_bytes, values)

    def model(self, name: str, stream: HipStream, scale: int = 1) -> HipModel:
        return HipModel(self, [{**command, "duration_us": command["duration_us"] * scale} for command in _recorded(name)], stream)

    def step(self, stream: HipStream) -> HipModel:
        # As many work-groups as fit at once. Kernels of several programs then take turns.
        grid = [self.at_once(_STEP_BLOCK, 0), 1, 1]
        kernel = {"kind": "kernel", "grid": grid, "block": [_STEP_BLOCK, 1, 1], "shared_bytes": 0}
        return HipModel(self, [{**kernel, "duration_us": _STEP_KERNEL_MS * 1000}] * _STEP_KERNELS, stream)


class HipStream:
    """A stream, as giveway takes it: with `handle`."""

    def __init__(self, place: ctypes.c_void_p) -> None:
        self.handle = place.value
        # What ctypes passes for it.
        self._as_parameter_ = place


class _Launch:
    """A kernel with its arguments, for hipModuleLaunchKernel."""

    def __init__(self, function: Any, grid: list[int], block: list[int], shared_bytes: int, values: list[Any]) -> None:
        self._values = values
        self._addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        self._shape = (function, *grid, *block, shared_bytes)

    def submit(self, client: HipClient, stream: HipStream) -> None:
        client.call("hipModuleLaunchKernel", *self._shape, stream, self._addresses, None)


class Completion:
    """One inference that was submitted."""

    def __init__(self, client: HipClient, stream: HipStream) -> None:
        self._client = client
        self._event = ctypes.c_void_p()
        client.call("hipEventCreateWithFlags", ctypes.byref(self._event), _EVENT_FLAGS)
        client.call("hipEventRecord", self._event, stream)

    def wait(self) -> None:
        self._client.call("hipEventSynchronize", self._event)

    def done(self) -> bool:
        return self._client.is_done(self._event)

    def __del__(self) -> None:
        # The client can be gone when the interpreter ends.
        if self._event and sys is not None and not sys.is_finalizing():
            self._client.call("hipEventDestroy", self._event)


class HipModel:
    """A sequence of commands, of which the last shows that no inference was lost, repeated or exchanged."""

    def __init__(self, client: HipClient, recorded: list[dict[str, Any]], stream: HipStream) -> None:
        self._client = client
        self._stream = stream
        self._submitted = 0
        # Memory of the host that the device reaches, so that reading it is no command.
        self._words, self._scratch, address = (ctypes.c_void_p() for _ in range(3))
        client.call("hipHostMalloc", ctypes.byref(self._words), _WORDS * 8, 0)
        ctypes.memset(self._words, 0, _WORDS * 8)
        client.call("hipHostGetDevicePointer", ctypes.byref(address), self._words, 0)
        most = max((command.get("bytes", 0) for command in recorded), default=0)
        client.call("hipMalloc", ctypes.byref(self._scratch), max(most, 1))
        self._commands = [self._prepare(command) for command in recorded]
        self._number = ctypes.c_uint64()
        mix = [address, address, ctypes.c_uint32(_WORDS), self._number]
        self._mix = client.launch(b"mix", [1, 1, 1], [_WORDS, 1, 1], 0, mix)

    def _prepare(self, command: dict[str, Any]) -> Any:
        """A launch, or the size of a memset."""
        if command["kind"] == "memset":
            return int(command["bytes"])
        grid, block = command["grid"], command["block"]
        shared_bytes = min(command["shared_bytes"], _MOST_SHARED_BYTES)
        rounds = math.ceil(math.prod(grid) / self._client.at_once(math.prod(block), shared_bytes))
        nanoseconds = round(command["duration_us"] * 1000)
        return self._client.launch(b"busy", grid, block, shared_bytes, [ctypes.c_uint64(nanoseconds), ctypes.c_uint32(rounds)])

    def submit(self) -> Completion:
        """Submits one inference, and waits for nothing. One thread at a time."""
        client, stream = self._client, self._stream
        for command in self._commands:
            if isinstance(command, int):
                client.call("hipMemsetAsync", self._scratch, 0, command, stream)
            else:
                command.submit(client, stream)
        self._submitted += 1
        self._number.value = self._submitted
        self._mix.submit(client, stream)
        return Completion(client, stream)

    def check(self) -> bool:
        """Waits for all inferences, and returns whether each ran once, in order."""
        self._client.call("hipStreamSynchronize", self._stream)
        words = [0] * _WORDS
        for number in range(1, self._submitted + 1):
            words = [_mix_step(word, index, number) for index, word in enumerate(words)]
        return list((ctypes.c_uint64 * _WORDS).from_address(self._words.value or 0)) == words


def _mix_step(word: int, index: int, number: int) -> int:
    """gw_mix_step of giveway_kernels.h, with one word as both operands."""
    mask = 2**64 - 1
    x = (word + ((word << 17) | (word >> 47)) + number + index * 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


def _load_hip() -> ctypes.CDLL:
    for name in _LIBRARIES:
        try:
            hip = ctypes.CDLL(name)
        except OSError:
            continue
        hip.hipGetErrorString.restype = ctypes.c_char_p
        unsigned, pointer, size = ctypes.c_uint, ctypes.c_void_p, ctypes.c_size_t
        hip.hipModuleLaunchKernel.argtypes = [pointer, *[unsigned] * 7, pointer, pointer, pointer]
        hip.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor.argtypes = [pointer, pointer, ctypes.c_int, size]
        hip.hipMemsetAsync.argtypes = [pointer, ctypes.c_int, size, pointer]
        hip.hipHostMalloc.argtypes = [pointer, size, unsigned]
        hip.hipMalloc.argtypes = [pointer, size]
        return hip
    sys.exit("HIP's runtime (libamdhip64.so) is not installed, and PyTorch for ROCm is not either. `make deps` installs HIP.")


# PyTorch. This part was not run yet.


def _torch_for_rocm() -> Optional[Any]:
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    return torch if torch.version.hip is not None and torch.cuda.is_available() else None


class TorchClient:
    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.label = f"client: PyTorch {torch.__version__}"

    def stream(self) -> Any:
        return self._torch.cuda.Stream()

    def model(self, name: str, stream: Any, scale: int = 1) -> TorchModel:
        network, batch = name.split("_bs")
        if network.startswith("resnet") and importlib.util.find_spec("torchvision") is not None:
            import torchvision

            layers = getattr(torchvision.models, network)(weights=None).eval().cuda()
            return TorchModel(self._torch, layers, self._torch.rand(int(batch) * scale, 3, 224, 224, device="cuda"), stream)
        # A product of 1024 x 1024 numbers takes about 100 us.
        return self._products(max(1, round(device_ms(name, scale) * 10)), 1024, stream)

    def step(self, stream: Any) -> TorchModel:
        return self._products(8, 4096, stream)

    def _products(self, count: int, size: int, stream: Any) -> TorchModel:
        # A permutation, so that the values stay as they are.
        factor = self._torch.eye(size, device="cuda").roll(1, 0)

        def chain(values: Any) -> Any:
            for _ in range(count):
                values = values @ factor
            return values

        return TorchModel(self._torch, chain, self._torch.rand(size, size, device="cuda"), stream)


class TorchModel:
    """A network with one input: every output must be as the first."""

    def __init__(self, torch: Any, network: Any, values: Any, stream: Any) -> None:
        self._torch, self._network, self._values, self._stream = torch, network, values, stream
        # What was prepared was prepared on the current stream.
        torch.cuda.current_stream().synchronize()
        self.submit().wait()
        self._first = self._output

    def submit(self) -> TorchCompletion:
        with self._torch.cuda.stream(self._stream), self._torch.inference_mode():
            self._output = self._network(self._values)
            event = self._torch.cuda.Event()
            event.record(self._stream)
        return TorchCompletion(event)

    def check(self) -> bool:
        self._stream.synchronize()
        with self._torch.inference_mode():
            return bool(self._torch.allclose(self._output, self._first, rtol=1e-3, atol=1e-3))


class TorchCompletion:
    def __init__(self, event: Any) -> None:
        self._event = event

    def wait(self) -> None:
        self._event.synchronize()

    def done(self) -> bool:
        return bool(self._event.query())
