#!/usr/bin/env python3
"""Records one inference of a model of torchvision as a file of this folder.

    examples/traces/record.py resnet152 8 > examples/traces/resnet152_bs8.json

It needs PyTorch, torchvision and a GPU. The model has random weights and single precision: only the commands count, and
their times. The profiler makes submissions slower (README.md), so the latency is measured without it.
"""
import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torchvision

LAUNCHES = ("cuda_runtime", "cuda_driver")
COMMANDS = ("kernel", "gpu_memset", "gpu_memcpy")


def triple(numbers):
    return [int(number) for number in numbers]


def command(event, submit, begin):
    """The command of an event of the device, which the host submitted at `submit`; times from `begin`, microseconds."""
    args = event["args"]
    fields = {"name": event["name"][:60]}
    if event["cat"] == "kernel":
        fields = {"kind": "kernel", **fields, "grid": triple(args["grid"]), "block": triple(args["block"])}
        fields["shared_bytes"] = int(args.get("shared memory", 0))
    elif event["cat"] == "gpu_memset":
        fields = {"kind": "memset", **fields, "bytes": int(args["bytes"])}
    else:
        sys.exit(f"record.py: the model copies ({event['name']}), and a replay has kernels and memsets only")
    times = {"submit_us": submit - begin, "start_us": event["ts"] - begin, "duration_us": event["dur"]}
    return {**fields, **{name: round(value, 3) for name, value in times.items()}}


def commands(events):
    """The commands of a trace of the profiler, in the order of their submits."""
    submits = {
        event["args"]["correlation"]: event["ts"]
        for event in events
        if event.get("cat") in LAUNCHES and "correlation" in event.get("args", {})
    }
    made = [event for event in events if event.get("cat") in COMMANDS]
    if not made:
        sys.exit("record.py: the profiler saw no command on the device")
    made.sort(key=lambda event: submits[event["args"]["correlation"]])
    begin = submits[made[0]["args"]["correlation"]]
    return [command(event, submits[event["args"]["correlation"]], begin) for event in made]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    name, batch = sys.argv[1], int(sys.argv[2])
    model = getattr(torchvision.models, name)(weights=None).cuda().eval()
    images = torch.randn(batch, 3, 224, 224, device="cuda")

    def infer():
        model(images)
        torch.cuda.synchronize()

    with torch.inference_mode():
        for _ in range(20):
            infer()
        times = []
        for _ in range(100):
            begin = time.perf_counter()
            infer()
            times.append((time.perf_counter() - begin) * 1e3)
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        # The first inference under the profiler starts it.
        with torch.profiler.profile(activities=activities):
            infer()
        with torch.profiler.profile(activities=activities) as profile:
            infer()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profile.export_chrome_trace(path)
        with open(path) as file:
            recorded = commands(json.load(file)["traceEvents"])
    version = ".".join(torch.__version__.split(".")[:2])
    device = torch.cuda.get_device_name()
    source = (
        f"recorded with the framework profiler on one {device}, PyTorch {version}, random weights, fp32, one inference; "
        "times in microseconds from the first submit"
    )
    head = {
        "model": name,
        "batch": batch,
        "device": device,
        "latency_ms": round(statistics.median(times), 3),
        "source": source,
    }
    lines = ",\n".join(json.dumps(line) for line in recorded)
    print(json.dumps(head)[:-1] + ', "commands": [\n' + lines + "\n]}")


main()
