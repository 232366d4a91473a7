"""`with giveway.priority(...)` and the decorators, by the priority that is in force."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import random
import threading
from collections.abc import AsyncIterator, Iterator

import fakes
import hip
import pytest
from conftest import listed, wait_for

import giveway
from giveway._types import XResult


def test_priority_counts_inside_and_not_after(stream: hip.Stream, queue: giveway.Queue) -> None:
    assert queue.priority == 0
    with giveway.priority(10, stream=stream):
        assert queue.priority == 10
    assert queue.priority == 0


def test_server_lists_priority_of_part(stream: hip.Stream, queue: giveway.Queue) -> None:
    number = queue.handle
    with giveway.priority(77, stream=stream):
        wait_for(lambda: any(one["priority"] == 77 for one in listed(os.getpid()).values()), "priority 77")
    wait_for(lambda: all(one["priority"] != 77 for one in listed(os.getpid()).values()), "the end of priority 77")
    assert queue.handle == number


def test_nested_parts_count_by_the_highest(queue: giveway.Queue) -> None:
    with giveway.priority(10, stream=queue):
        with giveway.priority(20, stream=queue):
            assert queue.priority == 20
            with giveway.priority(5, stream=queue):
                assert queue.priority == 20
        assert queue.priority == 10
    assert queue.priority == 0


def test_overlapping_parts_end_in_any_order(queue: giveway.Queue) -> None:
    first, second = giveway.priority(10, stream=queue), giveway.priority(20, stream=queue)
    first.__enter__()
    second.__enter__()
    second_ends_last = giveway.priority(30, stream=queue)
    second_ends_last.__enter__()
    first.__exit__()
    assert queue.priority == 30
    second_ends_last.__exit__()
    assert queue.priority == 20
    second.__exit__()
    assert queue.priority == 0


def test_exception_ends_part(queue: giveway.Queue) -> None:
    def fail() -> None:
        with giveway.priority(10, stream=queue):
            assert queue.priority == 10
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert queue.priority == 0


def test_one_object_can_be_nested(queue: giveway.Queue) -> None:
    scope = giveway.priority(10, stream=queue)
    with scope:
        with scope:
            with scope:
                assert queue.priority == 10
            assert queue.priority == 10
        assert queue.priority == 10
    assert queue.priority == 0


def test_part_counts_until_its_work_has_completed(stream: hip.Stream, queue: giveway.Queue, memory: hip.Memory) -> None:
    queue.suspend()
    with giveway.priority(10, stream=stream):
        memory.fill(1, stream.cuda_stream)
    assert queue.stats().pending == 1
    assert queue.priority == 10
    queue.resume()
    stream.synchronize()
    wait_for(lambda: queue.priority == 0, "the end of the part")


def test_queue_that_ends_inside_takes_its_part_along() -> None:
    stream = hip.Stream()
    with giveway.priority(10, stream=stream):
        stream.destroy()


def test_scope_of_no_stream_is_refused() -> None:
    with pytest.raises(giveway.GivewayError) as refused, giveway.priority(10, stream=0x1234):
        raise AssertionError("entered")
    assert refused.value.code == XResult.kXSchedErrorInvalidValue
    with pytest.raises(giveway.GivewayError) as missing, giveway.priority(10, stream=giveway.Queue(2**40)):
        raise AssertionError("entered")
    assert missing.value.code == XResult.kXSchedErrorNotFound


def test_null_stream_is_meant_without_a_framework() -> None:
    queue = giveway.stream()
    assert queue == giveway.stream(0)
    with giveway.priority(10):
        assert queue.priority == 10
    assert queue.priority == 0


def test_class_and_deadline_reach_the_server(queue: giveway.Queue, stream: hip.Stream) -> None:
    def hints() -> list[tuple[object, object]]:
        rows = listed(os.getpid()).values()
        return [(row["hints"].get("class"), row["hints"]["deadline_us"]) for row in rows]

    with giveway.latency_critical(slo_ms=12.5, stream=stream):
        wait_for(lambda: ("LatencyCritical", 12500) in hints(), "the deadline")
    with giveway.best_effort(stream=stream):
        wait_for(lambda: ("BestEffort", None) in hints(), "the class")
    wait_for(lambda: {word for word, _ in hints()} <= {None}, "the end of the class")


def test_undisturbed_part_has_highest_priority_and_class(queue: giveway.Queue, stream: hip.Stream) -> None:
    def expect(priority: int, cls: str) -> None:
        def is_seen() -> bool:
            return any(one["priority"] == priority and one["hints"].get("class") == cls for one in listed(os.getpid()).values())

        wait_for(is_seen, f"priority {priority} and class {cls}")

    with giveway.best_effort(priority=-9, stream=queue):
        with giveway.undisturbed(stream=stream):
            assert queue.priority == giveway.PRIORITY_MAX
            expect(giveway.PRIORITY_MAX, "LatencyCritical")
        assert queue.priority == -9

    @giveway.undisturbed
    def tuned() -> int:
        return 7

    assert tuned() == 7


def test_decorated_functions_keep_name_result_and_priority(queue: giveway.Queue) -> None:
    @giveway.priority(10, stream=queue)
    def add(a: int, *, b: int) -> tuple[int, int]:
        """Adds."""
        return a + b, queue.priority

    assert add(1, b=2) == (3, 10)
    assert (add.__name__, add.__doc__) == ("add", "Adds.")

    @giveway.latency_critical(slo_ms=1, priority=7, stream=queue)
    def critical(depth: int) -> int:
        return queue.priority if depth == 0 else critical(depth - 1)

    assert critical(3) == 7
    assert queue.priority == 0

    @giveway.best_effort
    def plain(value: int) -> int:
        return value

    assert plain(4) == 4


def test_generator_is_inside_until_it_ends(queue: giveway.Queue) -> None:
    @giveway.priority(10, stream=queue)
    def numbers() -> Iterator[int]:
        yield queue.priority
        yield queue.priority

    numbering = numbers()
    assert queue.priority == 0
    assert next(numbering) == 10
    assert queue.priority == 10
    assert list(numbering) == [10]
    assert queue.priority == 0
    abandoned = numbers()
    next(abandoned)
    abandoned.close()  # type: ignore[attr-defined]
    assert queue.priority == 0


def test_coroutines_and_async_generators_are_inside_until_they_end(queue: giveway.Queue) -> None:
    @giveway.priority(10, stream=queue)
    async def answer() -> int:
        await asyncio.sleep(0)
        return queue.priority

    @giveway.priority(20, stream=queue)
    async def numbers() -> AsyncIterator[int]:
        try:
            yield queue.priority
        except KeyError:
            yield -1

    async def all_of_it() -> None:
        assert await answer() == 10
        assert queue.priority == 0
        assert [number async for number in numbers()] == [20]
        assert queue.priority == 0
        thrown = numbers()
        await thrown.__anext__()
        assert await thrown.athrow(KeyError()) == -1  # type: ignore[attr-defined]
        await thrown.aclose()  # type: ignore[attr-defined]
        assert queue.priority == 0
        async with giveway.priority(30, stream=queue):
            assert queue.priority == 30
        assert queue.priority == 0

    asyncio.run(all_of_it())


def test_tasks_inside_one_object_leave_their_own_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fakes.torch()
    monkeypatch.setitem(__import__("sys").modules, "torch", torch)
    streams = [hip.Stream() for _ in range(3)]
    queues = [giveway.stream(one) for one in streams]
    scope = giveway.priority(10)

    async def enter(index: int, entered: asyncio.Event, leave: asyncio.Event) -> None:
        torch.current.handle = streams[index].cuda_stream
        with scope:
            entered.set()
            await leave.wait()

    async def all_of_them() -> None:
        events = [(asyncio.Event(), asyncio.Event()) for _ in streams]
        tasks = []
        for index, pair in enumerate(events):
            tasks.append(asyncio.ensure_future(enter(index, *pair)))
            await pair[0].wait()
        assert [queue.priority for queue in queues] == [10, 10, 10]
        # Neither the order in which they entered nor its reverse.
        for index, expected in ((1, [10, 0, 10]), (0, [0, 0, 10]), (2, [0, 0, 0])):
            events[index][1].set()
            await tasks[index]
            assert [queue.priority for queue in queues] == expected

    asyncio.run(all_of_them())
    for one in streams:
        one.destroy()


def test_generator_that_another_context_finishes_ends_its_part(queue: giveway.Queue) -> None:
    scope = giveway.priority(10, stream=queue)

    def held() -> Iterator[None]:
        with scope:
            yield

    with scope:
        one = held()
        contextvars.copy_context().run(next, one)
        contextvars.copy_context().run(lambda: next(one, None))
        assert queue.priority == 10
    assert queue.priority == 0
    assert scope._open == []


def test_threads_share_one_object_with_own_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fakes.torch(private=True)
    monkeypatch.setitem(__import__("sys").modules, "torch", torch)
    scope = giveway.priority(10)
    together = threading.Barrier(6, timeout=60)
    seen: list[tuple[int, int]] = []

    def work() -> None:
        stream = hip.Stream()
        torch.current.handle = stream.cuda_stream
        queue = giveway.stream(stream)
        for _ in range(20):
            together.wait()
            with scope:
                inside = queue.priority
            seen.append((inside, queue.priority))
        stream.destroy()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [(10, 0)] * 120
    assert set(torch.asked) == {"private, device 0"}


def test_many_threads_on_one_queue_leave_nothing_behind(queue: giveway.Queue) -> None:
    scopes = [giveway.priority(number, stream=queue) for number in range(1, 9)]
    too_low: list[int] = []

    def work(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(150):
            with contextlib.ExitStack() as stack:
                chosen = dice.choices(range(8), k=dice.randint(1, 5))
                for index in chosen:
                    stack.enter_context(scopes[index])
                if queue.priority < max(chosen) + 1:
                    too_low.append(max(chosen) + 1)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert too_low == []
    assert queue.priority == 0
    assert [scope._open for scope in scopes] == [[]] * 8


def test_priority_is_one_object_unless_it_is_entered() -> None:
    first = giveway.priority(3)
    assert giveway.priority(3) is first
    assert giveway.priority(4) is not first
    with giveway.priority(3) as outer:
        assert outer is first
        with giveway.priority(3) as inner:
            assert inner is not outer
    assert giveway.priority(3, stream=0) is not giveway.priority(3, stream=0)
