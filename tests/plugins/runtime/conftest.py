"""Fixtures of the runtime's tests."""

import signal

import pytest


@pytest.fixture
def interruptible():
    """Let SIGINT raise KeyboardInterrupt: a shell that starts the tests in the background lets them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
