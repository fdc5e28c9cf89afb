"""Work that goes on in a thread while a block of a test runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeated(work: Callable[[], object], pause: float) -> Iterator[None]:
    """Call `work` again and again, with so many seconds between two calls, until the block ends."""
    over = threading.Event()

    def run() -> None:
        while True:
            work()
            if over.wait(pause):
                return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
