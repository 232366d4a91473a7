"""CuPy in worker processes, as a service has them: three forked ones, and while they live, two spawned ones. Each has
a stream of its own, and its copies, fills and kernels leave memory that can be checked. Their parent does not use
HIP.
"""

import multiprocessing

import numpy

import steps
import words

COUNT, ROUNDS = 1 << 15, 6


def work(seed, pipe):
    """A worker: says what it has computed, and ends when it is told to."""
    import cupy

    import cupy_words

    stream = cupy.cuda.Stream(non_blocking=True)
    state, other = cupy.ndarray(COUNT, numpy.uint64), cupy.ndarray(COUNT, numpy.uint64)
    host, back = cupy_words.pinned(COUNT), cupy_words.pinned(COUNT)
    host[:] = want = words.pattern(seed, COUNT)
    cupy_words.upload(stream, state, host)
    for round in range(ROUNDS):
        other.data.memset_async(seed + round, other.nbytes, stream)
        filled = numpy.full(COUNT * 8, seed + round, numpy.uint8).view(numpy.uint64)
        cupy_words.launch_mix(stream, other, state, round)
        cupy_words.launch_mix(stream, state, other, round)
        filled = words.mix(filled, want, round)
        want = words.mix(want, filled, round)
    cupy_words.download(stream, back, state)
    stream.synchronize()
    pipe.send(words.verdict(back, want))
    pipe.recv()


def start(way, seeds):
    """Starts workers in this way, and says what each of them has computed."""
    context = multiprocessing.get_context(way)
    workers = []
    for seed in seeds:
        here, there = context.Pipe()
        worker = context.Process(target=work, args=(seed, there))
        worker.start()
        workers.append((seed, worker, here))
    for seed, _, pipe in workers:
        print(f"{way}ed worker {seed}: {pipe.recv()}", flush=True)
    steps.done(f"{way}ed workers")
    return workers


def main():
    workers = start("fork", [1, 2, 3])
    # A process that has forked can start others that know nothing of it.
    workers += start("spawn", [4, 5])
    for seed, worker, pipe in workers:
        pipe.send("end")
        worker.join()
        print(f"worker {seed} ended with {worker.exitcode}")


if __name__ == "__main__":
    main()
