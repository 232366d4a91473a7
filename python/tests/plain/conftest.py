"""Tests in a process without the preloaded library: they need no GPU and no root."""

from __future__ import annotations

import ctypes

import pytest


def pytest_sessionstart() -> None:
    if hasattr(ctypes.CDLL(None), "XQueueCreate"):
        pytest.exit("these tests are about a process without the preloaded library", returncode=3)


def pytest_configure(config: pytest.Config) -> None:
    # The first use of the package warns; test_inactive.py checks that in processes of its own.
    config.addinivalue_line("filterwarnings", "ignore::giveway.GivewayWarning")
