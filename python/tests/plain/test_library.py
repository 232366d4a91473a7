"""Two threads look for the library at the same time."""

from __future__ import annotations

import warnings
from typing import cast

import pytest

from giveway import _library


class LockBehindAnotherThread:
    """A lock that is given only when another thread has found the library."""

    def __init__(self, found: _library.Library) -> None:
        self._found = found

    def __enter__(self) -> None:
        _library.active = self._found

    def __exit__(self, *_: object) -> None:
        pass


def test_thread_that_waits_for_another_one_to_find_the_library_does_not_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    found = cast(_library.Library, object())
    monkeypatch.setattr(_library, "active", None)
    monkeypatch.setattr(_library, "_missing", None)
    monkeypatch.setattr(_library, "_said", set())
    monkeypatch.setattr(_library, "_lock", LockBehindAnotherThread(found))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _library.find() is found
