"""XSched's names."""

from __future__ import annotations

import threading
from pathlib import Path

import hip
import pytest

import giveway
import xsched
import xsched_hip
from xsched import XSched
from xsched.hip import XSchedHip


def test_queue_is_made_hinted_suspended_and_waited_for(stream: hip.Stream, memory: hip.Memory) -> None:
    assert xsched_hip.XSchedHip is XSchedHip
    result, hardware_queue = XSchedHip.HipQueueCreate(stream)
    assert result == xsched.kXSchedSuccess
    result, queue = XSched.XQueueCreate(hardware_queue, xsched.kPreemptLevelBlock, xsched.kQueueCreateFlagNone)
    assert (result, queue) == (xsched.kXSchedSuccess, giveway.stream(stream).handle)
    assert XSched.XQueueGet(hardware_queue) == (xsched.kXSchedSuccess, queue)
    assert XSchedHip.XQueueGetForStream(stream.cuda_stream) == (xsched.kXSchedSuccess, queue)
    for answer in (
        XSched.XHintPriority(queue, 6),
        XSched.XHintUtilization(queue, 50),
        XSched.XHintLaxity(queue, 10, -10, 10),
        XSched.XHintLaxity(queue, xsched.NO_LAXITY, 0, 0),
        XSched.XHintSlo(queue, 1000),
        XSched.XHintDeadline(queue, xsched.NO_DEADLINE),
        XSched.XQueueSetLaunchConfig(queue, 8, 4),
        XSched.XQueueSetPreemptLevel(queue, xsched.kPreemptLevelBlock),
        XSched.XQueueSuspend(queue, xsched.kQueueSuspendFlagNone),
    ):
        assert answer == xsched.kXSchedSuccess
    assert giveway.Queue(queue).priority == 6
    memory.fill(9, stream.cuda_stream)
    assert XSched.XQueueQuery(queue) == (xsched.kXSchedSuccess, xsched.kQueueStateReady)
    assert XSched.XQueueResume(queue, xsched.kQueueResumeFlagNone) == xsched.kXSchedSuccess
    assert XSched.XQueueWaitAll(queue) == xsched.kXSchedSuccess
    assert XSched.XQueueProfileHwCommandCount(queue) == (xsched.kXSchedSuccess, 1)
    assert XSched.HwQueueSynchronize(hardware_queue) == xsched.kXSchedSuccess
    assert XSched.XQueueDestroy(queue) == xsched.kXSchedSuccess
    assert XSched.XHintPriority(queue, 6) == xsched.kXSchedErrorNotFound
    assert XSched.HwQueueDestroy(hardware_queue) == xsched.kXSchedSuccess


def test_commands_in_python_run_in_order(stream: hip.Stream, queue: giveway.Queue) -> None:
    called: list[int] = []

    def launch(hardware_queue: int, number: int) -> int:
        called.append(number)
        return xsched.kXSchedSuccess

    # Other threads change hints meanwhile: a thread of the library needs the interpreter in the middle of its own work.
    ended = threading.Event()

    def change() -> None:
        while not ended.is_set():
            with giveway.priority(10, stream=queue):
                queue.stats()

    threads = [threading.Thread(target=change) for _ in range(3)]
    for thread in threads:
        thread.start()
    last = 0
    for number in range(300):
        result, last = XSched.HwCommandCreateCallback(launch, number)
        assert result == xsched.kXSchedSuccess
        assert XSched.XQueueSubmit(queue.handle, last) == xsched.kXSchedSuccess
    assert XSched.XQueueWait(queue.handle, last) == xsched.kXSchedSuccess
    ended.set()
    for thread in threads:
        thread.join()
    assert called == list(range(300))


def test_command_can_be_launched_by_hand_and_forgotten(stream: hip.Stream) -> None:
    from xsched import _calls

    before = dict(_calls._commands)
    _, hardware_queue = XSchedHip.HipQueueCreate(stream)
    _, command = XSched.HwCommandCreateCallback(lambda queue, data: data, xsched.kXSchedErrorNotAllowed)
    assert XSched.HwQueueLaunch(hardware_queue, command) == xsched.kXSchedErrorNotAllowed
    assert XSched.HwQueueLaunch(hardware_queue, command) == xsched.kXSchedErrorNotAllowed
    assert XSched.HwCommandDestroy(command) == xsched.kXSchedSuccess
    assert XSched.HwQueueLaunch(hardware_queue, command) == xsched.kXSchedErrorNotFound
    assert _calls._commands == before


def test_exception_in_a_command_is_printed_and_fails_it(stream: hip.Stream, capsys: pytest.CaptureFixture[str]) -> None:
    def launch(hardware_queue: int, data: object) -> int:
        raise KeyError("from the command")

    _, hardware_queue = XSchedHip.HipQueueCreate(stream)
    _, command = XSched.HwCommandCreateCallback(launch)
    assert XSched.HwQueueLaunch(hardware_queue, command) == xsched.kXSchedErrorUnknown
    assert "from the command" in capsys.readouterr().err


def test_constants_are_those_of_the_headers() -> None:
    headers = Path(__file__).resolve().parents[3] / "include" / "xsched"
    if not headers.is_dir():
        pytest.skip("the headers of the source tree are not here")
    import re

    text = "".join((headers / name).read_text() for name in ("types.h", "hint.h"))
    pairs = re.findall(r"\b(k[A-Z]\w+) = (-?0x[0-9a-f]+|-?\d+)", text)
    pairs += re.findall(r"#define (\w+) \(?(-?\d+)\)?\n", text)
    assert len(pairs) > 80
    differ = {name: value for name, value in pairs if int(getattr(xsched, name, -99)) != int(value, 0)}
    assert differ == {}
