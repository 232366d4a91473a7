"""XSched's names for HIP streams."""

from __future__ import annotations

from typing import Any

from giveway._streams import handle_of
from giveway._types import XResult

from ._calls import call_for_handle

__all__ = ["XSchedHip", "hipStream_t"]

hipStream_t = int


class XSchedHip:
    @staticmethod
    def HipQueueCreate(stream: Any) -> tuple[XResult, int]:
        """Wraps a stream as a hardware queue. `stream`: a number, or an object of PyTorch or CuPy."""
        return call_for_handle("HipQueueCreate", handle_of(stream))

    @staticmethod
    def XQueueGetForStream(stream: Any) -> tuple[XResult, int]:
        """giveway's own."""
        return call_for_handle("XQueueGetForStream", handle_of(stream))
