"""The contract of sinks (S1, S6) as tests. Subclass `SinkContract`, provide a case, and run pytest.

class TestFolderSink(SinkContract):
    @asynccontextmanager
    async def open_case(self):
        async def written():
            return [line for file in folder.iterdir() for line in file.read_bytes().splitlines()]

        yield SinkCase(lambda: FolderSink(properties), written)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from recordpublisher.fetcher.sink import Checkpoint, Sink, SinkContext, State
from recordpublisher.publishers.errors import FencedError

from .contract import Contract, on_case
from .sink_case import SinkCase, batch_of, checkpoint_at, states_of

__all__ = ["SinkCase", "SinkContract"]
MAX_FLUSHES, PAUSE_SECONDS = 100, 0.05


class SinkContract(Contract[SinkCase]):
    """The tests. Implement `open_case`. A sink whose `open` returns stored state is tested for exactly once, with fencing."""

    @on_case
    async def test_what_was_flushed_is_in_the_target(self, case: SinkCase) -> None:
        """Each record is written once, in the order of its shard. Watermarks and idleness between the writes change nothing."""
        sink = await _opened(case)
        await sink.write(batch_of("a", 1, 2))
        await sink.watermark(1_700_000_000_000)
        await sink.write(batch_of("b", 3))
        await sink.idle()
        await sink.write(batch_of("a", 4, 5))
        await sink.flush(checkpoint_at(5))
        written = await case.written()
        assert sorted(written) == [b"1", b"2", b"3", b"4", b"5"]
        assert [payload for payload in written if payload != b"3"] == [b"1", b"2", b"4", b"5"]
        await sink.close()

    @on_case
    async def test_what_doctor_asks_changes_nothing(self, case: SinkCase) -> None:
        """The test calls `checks` and `check_values` of a second sink, which is not opened, while the sink of a job is running."""
        sink = await _opened(case)
        await sink.write(batch_of("a", 1))
        asked = case.start()
        for ask in asked.checks().values():
            await ask()
        await asked.check_values(SinkContext())
        await asked.close()
        await sink.flush(checkpoint_at(1))
        assert list(await case.written()) == [b"1"]
        await sink.close()

    @on_case
    async def test_checkpoints_without_records_succeed(self, case: SinkCase) -> None:
        """A job makes them before its first record, and while nothing arrives."""
        sink = await _opened(case)
        for _ in range(2):
            await sink.flush(checkpoint_at(0))
        await sink.close()
        assert list(await case.written()) == []

    @on_case
    async def test_a_sink_that_wrote_nothing_can_be_closed(self, case: SinkCase) -> None:
        """A job that fails at its start also closes the sink."""
        sink = case.start()
        await sink.open(SinkContext())
        await sink.close()

    @on_case
    async def test_a_restart_loses_nothing(self, case: SinkCase) -> None:
        """Flushed records are still there. If `open` returns state, it is the checkpoint's, and no later record is in the target (S6)."""
        sink = await _opened(case)
        await sink.write(batch_of("a", 1, 2))
        await sink.flush(checkpoint_at(2))
        await sink.write(batch_of("a", 3))
        await sink.close()
        following = case.start()
        stored = states_of(await following.open(SinkContext()))
        written = list(await case.written())
        if stored:
            assert stored == [checkpoint_at(2).state]
            assert written == [b"1", b"2"], "the state and the records must be stored together"
        else:
            assert written[:2] == [b"1", b"2"]
        await following.close()

    @on_case
    async def test_a_replaced_start_cannot_store(self, case: SinkCase) -> None:
        """A sink that stores state refuses a start that was replaced, with a FencedError, and stores nothing of it (S6)."""
        sleeper = await _opened(case)
        await sleeper.flush(checkpoint_at(0))
        successor = case.start()
        if states_of(await successor.open(SinkContext())):
            await sleeper.write(batch_of("a", 1))
            assert await _is_fenced(sleeper), "the flush of a replaced start must raise FencedError"
            await successor.write(batch_of("a", 2))
            await successor.flush(checkpoint_at(2, generation=2))
            assert list(await case.written()) == [b"2"]
        await sleeper.close()
        await successor.close()

    @on_case
    async def test_shards_may_come_and_go(self, case: SinkCase) -> None:
        """ELASTIC assignment moves shards: no flushed record is lost with a shard, and other shards are still written."""
        sink = await _opened(case)
        sink.assigned(["orders/a", "orders/b"])
        await sink.write(batch_of("a", 1))
        await sink.write(batch_of("b", 2))
        await sink.flush(checkpoint_at(2))
        sink.revoked(["orders/a"])
        await sink.write(batch_of("b", 3))
        await sink.flush(checkpoint_at(3))
        assert sorted(await case.written()) == [b"1", b"2", b"3"]
        await sink.close()

    @on_case
    async def test_a_revoked_shard_may_come_back(self, case: SinkCase) -> None:
        """Records that were written and not flushed are written again, and must not be missing."""
        sink = await _opened(case)
        sink.assigned(["orders/a"])
        await sink.write(batch_of("a", 1, 2))
        sink.revoked(["orders/a"])
        sink.assigned(["orders/a"])
        await sink.write(batch_of("a", 1, 2, 3))
        await sink.flush(checkpoint_at(3))
        assert set(await case.written()) == {b"1", b"2", b"3"}
        await sink.close()

    @on_case
    async def test_a_partial_checkpoint_returns_entries_that_the_sink_got(self, case: SinkCase) -> None:
        """The sink confirms none of the entries from before a shard came back.

        In the end it confirms the newest one, or `has_given_up`.
        """
        sink = await _opened(case)
        sink.assigned(["orders/a"])
        await sink.write(batch_of("a", 1, 2))
        await sink.flush(replace(checkpoint_at(2), may_be_partial=True))
        sink.revoked(["orders/a"])
        sink.assigned(["orders/a"])
        last = replace(checkpoint_at(5), may_be_partial=True)
        await sink.write(batch_of("a", 4, 5))
        confirmed = _entry_of(await sink.flush(last), last)
        assert confirmed in (None, _entry_of(None, last)), "the shard was away since"
        for _ in range(MAX_FLUSHES):
            confirmed = _entry_of(await sink.flush(replace(last, stopped=("orders/a",))), last)
            if confirmed == _entry_of(None, last) or sink.has_given_up("orders/a"):
                break
            await asyncio.sleep(PAUSE_SECONDS)
        if confirmed == _entry_of(None, last):
            assert {b"4", b"5"} <= set(await case.written())
        else:
            assert sink.has_given_up("orders/a"), "a shard must be given up in the end"
        await sink.close()

    @on_case
    async def test_stored_positions_can_be_read_beside_the_job(self, case: SinkCase) -> None:
        """`recordpublisher lag` reads them without disturbing the job."""
        sink = await _opened(case)
        await sink.flush(checkpoint_at(0))
        reader = case.start()
        stored = await reader.stored_positions()
        assert stored is None or states_of(stored) == [checkpoint_at(0).state]
        await reader.close()
        await sink.write(batch_of("a", 1))
        await sink.flush(checkpoint_at(1))
        assert list(await case.written()) == [b"1"]
        await sink.close()


async def _opened(case: SinkCase) -> Sink:
    sink = case.start()
    assert not states_of(await sink.open(SinkContext())), "the case's target must be empty"
    return sink


def _entry_of(confirmed: State | None, given: Checkpoint) -> Mapping[str, Any] | None:
    """Return the entry of the shard that a flush has confirmed. A sink that returns nothing confirms the checkpoint that it was given."""
    entry: Mapping[str, Any] | None = (given.state if confirmed is None else confirmed)["shards"].get("orders/a")
    return entry


async def _is_fenced(sink: Sink) -> bool:
    try:
        await sink.flush(checkpoint_at(1))
    except FencedError:
        return True
    return False
