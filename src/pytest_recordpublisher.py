"""What pytest loads with the library installed: fixtures for tests of jobs. Loading it imports nothing else of the library."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from recordpublisher.local import LocalKinesisThread, LocalStream


@pytest.fixture
def kinesis() -> Iterator[LocalKinesisThread]:
    """An embedded Kinesis endpoint, empty for each test. Define your own fixture of this name for one with limits or faults."""
    from recordpublisher.local import serve_in_thread

    with serve_in_thread() as served:
        yield served


@pytest.fixture
def kinesis_stream(kinesis: LocalKinesisThread) -> LocalStream:
    """The stream `orders` of the endpoint, with two shards: `kinesis_stream.put({"order": 1})`."""
    return kinesis.create_stream("orders", 2)


@pytest.fixture
def kinesis_properties(kinesis: LocalKinesisThread) -> dict[str, str]:
    """The properties with which a job reads the endpoint's streams from their oldest record."""
    return {**kinesis.properties(), "flink.stream.initpos": "TRIM_HORIZON"}


@pytest.fixture
def run_virtual() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """`run_virtual(coroutine)` runs it on a loop whose time jumps to the next timer: a test of minutes ends at once."""
    from recordpublisher.testing import run_virtual

    return run_virtual
