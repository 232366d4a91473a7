"""`llama-bench` of llama.cpp on a model with random weights: a prompt and some tokens, three times each. What it prints is compared without
times and rates.

    llama_bench.py [OPTION...]
"""

import json
import subprocess
import sys

import gguf

# What does not depend on time.
_FIELDS = ["backends", "gpu_info", "model_type", "model_size", "n_gpu_layers", "n_prompt", "n_gen"]


def main():
    command = ["llama-bench", "-m", gguf.model(), "-ngl", "99", "-p", "64", "-n", "24", "-r", "3", "-t", "1", "-o", "json", *sys.argv[1:]]
    bench = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    for row in json.loads(bench.stdout) if bench.stdout else []:
        print(*[f"{field}={row[field]}" for field in _FIELDS], f"measurements={len(row['samples_ns'])}")
    print("llama-bench ended with", bench.returncode)


main()
