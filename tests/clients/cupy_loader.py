"""A data loader with pinned copies, as a training program has it. A process fills batches in shared memory, which
this process registers with HIP. A thread copies each into a pinned buffer, and uploads it on a stream of its own. The
main thread computes on a second stream and downloads on a third one. Only events keep the order.
"""

import hashlib
import mmap
import multiprocessing
import queue
import threading

import numpy

import steps
import words

COUNT, BATCHES, SLOTS = 1 << 14, 24, 3


def produce(shared, free, full):
    """The process: one batch after the other, each in the next slot that is free."""
    slots = numpy.frombuffer(shared, numpy.uint64).reshape(SLOTS, COUNT)
    for batch in range(BATCHES):
        free.acquire()
        slots[batch % SLOTS] = words.pattern(batch, COUNT)
        full.release()


class Loader:
    """Streams, buffers and events, one of each kind for each slot."""

    def __init__(self, shared):
        import cupy

        import cupy_words
        import runtime

        self.on = cupy_words
        self.shared = numpy.frombuffer(shared, numpy.uint64).reshape(SLOTS, COUNT)
        runtime.register(self.shared)
        self.up, self.compute, self.down = (cupy.cuda.Stream(non_blocking=True) for _ in range(3))
        self.pinned = [cupy_words.pinned(COUNT) for _ in range(SLOTS)]
        self.results = [cupy_words.pinned(COUNT) for _ in range(SLOTS)]
        # Batches with an even number go straight from the shared memory, the others by way of the pinned buffer.
        self.batches = [cupy.ndarray(COUNT, numpy.uint64) for _ in range(SLOTS)]
        self.copies = [cupy.ndarray(COUNT, numpy.uint64) for _ in range(SLOTS)]
        self.state = cupy.ndarray(COUNT, numpy.uint64)

        def events():
            return [cupy.cuda.Event(disable_timing=True) for _ in range(SLOTS)]

        self.uploaded, self.computed, self.downloaded = events(), events(), events()
        self.ready, self.used = queue.Queue(), queue.Queue()
        for slot in range(SLOTS):
            self.used.put(slot)

    def load(self, free, full):
        """The thread."""
        for batch in range(BATCHES):
            # The main thread has submitted what reads the slot's last batch.
            slot = self.used.get()
            full.acquire()
            source = self.shared[slot]
            if batch % 2:
                if batch >= SLOTS:
                    self.uploaded[slot].synchronize()
                self.pinned[slot][:] = source
                source = self.pinned[slot]
            if batch >= SLOTS:
                self.up.wait_event(self.computed[slot])
            self.on.upload(self.up, self.batches[slot], source)
            self.uploaded[slot].record(self.up)
            self.ready.put(slot)
            # The loader may write into the shared slot once nothing reads it any more.
            if batch % 2 == 0:
                self.uploaded[slot].synchronize()
            free.release()

    def result(self, slot, into):
        self.downloaded[slot].synchronize()
        into.update(self.results[slot].tobytes())

    def consume(self):
        """The main thread: a digest of all results."""
        seen = hashlib.sha256()
        self.state.data.memset_async(0, self.state.nbytes, self.compute)
        for batch in range(BATCHES):
            slot = self.ready.get()
            assert slot == batch % SLOTS
            if batch >= SLOTS:
                self.result(slot, seen)
                self.compute.wait_event(self.downloaded[slot])
            self.compute.wait_event(self.uploaded[slot])
            self.on.launch_mix(self.compute, self.state, self.batches[slot], batch)
            self.copies[slot].data.copy_from_device_async(self.state.data, self.state.nbytes, self.compute)
            self.computed[slot].record(self.compute)
            self.used.put(slot)
            self.down.wait_event(self.computed[slot])
            self.on.download(self.down, self.results[slot], self.copies[slot])
            self.downloaded[slot].record(self.down)
        for batch in range(BATCHES, BATCHES + SLOTS):
            self.result(batch % SLOTS, seen)
        return seen.hexdigest()[:16]


def wanted():
    """The same digest by numpy."""
    seen, state = hashlib.sha256(), numpy.zeros(COUNT, numpy.uint64)
    for batch in range(BATCHES):
        state = words.mix(state, words.pattern(batch, COUNT), batch)
        seen.update(state.tobytes())
    return seen.hexdigest()[:16]


def main():
    context = multiprocessing.get_context("fork")
    shared = mmap.mmap(-1, SLOTS * COUNT * 8)
    free, full = context.Semaphore(SLOTS), context.Semaphore(0)
    # HIP is not used before.
    process = context.Process(target=produce, args=(shared, free, full), daemon=True)
    process.start()
    loader = Loader(shared)
    thread = threading.Thread(target=loader.load, args=(free, full), daemon=True)
    thread.start()
    got = loader.consume()
    thread.join()
    process.join()
    want = wanted()
    print(f"{BATCHES} batches: {got}, {'right' if got == want else 'wrong'}")
    steps.done("batches")
    print("loader process ended with", process.exitcode)


if __name__ == "__main__":
    main()
