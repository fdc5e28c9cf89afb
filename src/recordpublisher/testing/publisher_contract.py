"""The contract of a publisher: tests that it must pass. Subclass `PublisherContract`, provide a case, and run pytest.

class TestLines(PublisherContract):
    @asynccontextmanager
    async def open_case(self):
        yield PublisherCase(LinesFactory(properties), Shard("orders", "a.txt"), [b"one", b"two", ...])
"""

from __future__ import annotations

import asyncio
import time
import types
from collections.abc import Coroutine, Generator, Sequence
from itertools import pairwise
from math import ceil, floor
from typing import Any

from recordpublisher.publishers.base import (
    BatchConsumer,
    RecordPublisher,
    make_publisher,
    oldest_record_of,
    oldest_retained_of,
    shards_listed_by,
    with_unlisted,
)
from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.user_code import describe_error

from ..publishers.shard_metrics import ShardMetrics
from ..publishers.shards import Shard
from .contract import check_answers_for_doctor, check_arrival_times, on_case
from .open_shard_contract import OpenShardContract
from .publisher_runs import (
    SWALLOWED,
    BrokenConsumer,
    HalfConsumer,
    PublisherCase,
    RecordingConsumer,
    RefusingConsumer,
    SlowConsumer,
    WatchedConsumer,
    abandon,
    cancel_after,
    check_payloads,
    run_to_end,
    run_until_complete,
)

CANCEL_AFTER_STEPS = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55)
"""After how many steps of the event loop each run is cancelled. They differ, so that runs are interrupted at different places."""
MAX_STEP_SECONDS = 0.1
"""How long a run may block the event loop at once (seconds). On a busy machine one run may block it for longer, but not each of
`TIMED_RUNS` runs.
"""
TIMED_RUNS = 3
OPEN_SECONDS, READ_SHARDS = 1.0, 3
"""How long a shard that is listed as open is read (seconds), and how many such shards are read."""


class PublisherContract(OpenShardContract):
    """The tests of a publisher. Implement `open_case`, which also closes the factory.

    If the case has an `open_shard` and a `put`, the tests also check that a run waits for records, resumes without a gap, says when it has
    read everything, and gives no half-written record.

    Override `execute` to run them on virtual time (`run_virtual`).
    """

    @on_case
    async def test_the_case_needs_several_batches(self, case: PublisherCase) -> None:
        """Check that the case has more than one batch. The other tests need that."""
        consumer = RecordingConsumer()
        await _run_case_to_end(case, consumer)
        count = len(consumer.payloads)
        assert count >= len(case.payloads), (
            f"{count} of {len(case.payloads)} records came: `run` ended, and the position of the last one is not the end of the shard"
        )
        given = sum(len(batch) > 0 for batch in consumer.batches)
        assert given > 1, (
            f"the publisher gave all {count} records in {given} batch: give the case more records, or the publisher smaller batches"
        )

    @on_case
    async def test_batches_come_in_shard_order_and_end_in_complete(self, case: PublisherCase) -> None:
        """Check that every record of the shard is delivered once, in order, and that each batch has the position of its last record."""
        consumer = RecordingConsumer()
        await _run_case_to_end(case, consumer)
        check_payloads(consumer.payloads, case.payloads)
        others = [batch.shard.key for batch in consumer.batches if batch.shard.key != case.shard.key]
        assert not others, (
            f"a publisher of {case.shard.key} gave a batch of {others[0]}: give the batch the shard that `create` got"
        )
        missing = [r for batch in consumer.batches for r in batch.records if r.partition_key is None]
        assert not missing or case.factory.keyless, (
            f"record {missing[0].sequence_number} has no partition key (None): give each record a text, such as its line's number or ''"
        )
        unplaced = [number for number, batch in enumerate(consumer.batches) if len(batch) and not batch.read_position]
        assert not unplaced, (
            f"batch {unplaced[0]} (from 0) has records and no `read_position`: it is the position of its last record"
        )

    @on_case
    async def test_sequence_numbers_grow_in_the_factorys_order(self, case: PublisherCase) -> None:
        """Check that sequence numbers grow in the order of the factory's `order_of`. A job compares positions by this order."""
        consumer = RecordingConsumer()
        await _run_case_to_end(case, consumer)
        records = [record for batch in consumer.batches for record in batch.records]
        try:
            places = [(case.factory.order_of(record.sequence_number), record.sub_sequence_number) for record in records]
        except Exception as error:
            raise AssertionError(
                f"`order_of` cannot order the publisher's sequence numbers, such as '{records[0].sequence_number}' ({error}): "
                "implement it, because the default is for whole numbers"
            ) from error
        for number, (place, following) in enumerate(pairwise(places), 1):
            assert place < following, (
                f"record {number} (from 0) has the sequence number '{records[number].sequence_number}', which does not come after "
                f"'{records[number - 1].sequence_number}' in the order of `order_of`: sequence numbers of a shard grow"
            )

    @on_case
    async def test_records_have_their_time_of_arrival(self, case: PublisherCase) -> None:
        """Check that `arrival` is in seconds: each must be from the year 2000 to 2100."""
        consumer = RecordingConsumer()
        await _run_case_to_end(case, consumer)
        check_arrival_times(consumer.batches)

    @on_case
    async def test_only_the_last_batch_is_at_the_tip(self, case: PublisherCase) -> None:
        """Check that only the last batch is 0 ms behind the tip. A run with `stop_at_tip` ends at such a batch."""
        consumer = RecordingConsumer()
        await _run_case_to_end(case, consumer)
        read = 0
        for batch in consumer.batches:
            read += len(batch)
            left = len(case.payloads) - read
            assert batch.millis_behind_latest != 0 or not left, (
                f"a batch has `millis_behind_latest` 0 although {left} records follow: only the last batch is at the tip"
            )

    @on_case
    async def test_it_resumes_from_the_returned_position(self, case: PublisherCase) -> None:
        """Check that a consumer that accepts half of a batch gets the other half next, and no record twice."""
        await _check_everything_is_delivered(case, HalfConsumer())

    @on_case
    async def test_a_refused_batch_comes_again(self, case: PublisherCase) -> None:
        """Check that a consumer that returns None for a batch gets the batch again."""
        await _check_everything_is_delivered(case, RefusingConsumer())

    @on_case
    async def test_a_new_publisher_starts_after_any_position(self, case: PublisherCase) -> None:
        """Check that a restart after any record reads exactly the records after it."""
        whole = RecordingConsumer()
        await _run_case_to_end(case, whole)
        for count, position in enumerate(whole.positions(), 1):
            rest = RecordingConsumer()
            await run_to_end(await case.publisher(StartingPosition.after(position)), rest)
            check_payloads(rest.payloads, case.payloads[count:], f"from a start after {position}, ")

    @on_case
    async def test_a_new_publisher_starts_at_any_record(self, case: PublisherCase) -> None:
        """Check that a start AT a record reads this record and the later ones. `recordpublisher tail --from` uses such a start."""
        whole = RecordingConsumer()
        await _run_case_to_end(case, whole)
        numbers = [record.sequence_number for batch in whole.batches for record in batch.records]
        for number in dict.fromkeys(numbers):  # The sub-records of an aggregate have one number.
            rest = await _read_from(case, StartingPosition(PositionType.AT_SEQUENCE_NUMBER, number))
            check_payloads(rest, case.payloads[numbers.index(number) :], f"from a start AT_SEQUENCE_NUMBER {number}, ")

    @on_case
    async def test_a_start_by_time_leaves_out_what_arrived_before(self, case: PublisherCase) -> None:
        """Check that a start at a time leaves out records that arrived earlier.

        By default a job starts at LATEST, and replaces that by a time. A publisher that ignored the time would read all stored records.
        """
        whole = RecordingConsumer()
        await _run_case_to_end(case, whole)
        # Rounded to microseconds, the resolution of a file's time. Further digits would be errors of floating-point numbers.
        arrivals = [round(1000 * record.arrival, 3) for batch in whole.batches for record in batch.records]
        for time_ms in sorted({*map(floor, arrivals), ceil(max(arrivals)) + 1}):
            first = next((place for place, arrival in enumerate(arrivals) if arrival >= time_ms), len(arrivals))
            rest = await _read_from(case, StartingPosition.at_timestamp(time_ms))
            check_payloads(rest, case.payloads[first:], f"from a start AT_TIMESTAMP {time_ms}, ")

    @on_case
    async def test_a_start_at_the_tip_leaves_out_what_is_there(self, case: PublisherCase) -> None:
        """Check that a start at LATEST reads no stored record, and nothing of a shard that has ended."""
        if await _read_from(case, StartingPosition.latest()):
            await asyncio.sleep(1.1)  # LATEST may become a time of the service, in whole seconds.
            read = len(await _read_from(case, StartingPosition.latest()))
            assert not read, (
                f"a start at LATEST gave {read} records that were stored before it: it must read only records that arrive later"
            )

    @on_case
    async def test_reads_are_counted(self, case: PublisherCase) -> None:
        """Check that the publisher counts its reads. Metrics, progress and limits of bytes need these counts."""
        consumer, metrics = RecordingConsumer(), ShardMetrics()
        await run_to_end(await case.publisher(metrics=metrics), consumer)
        counted = metrics.number_of_deaggregated_records
        assert metrics.reads, "no read was counted: call `metrics.count_read(batch)` for each batch"
        assert counted == len(case.payloads), (
            f"{counted} records were counted, and the case has {len(case.payloads)}: "
            "call `metrics.count_read(batch)` once for each batch"
        )
        assert sum(batch.raw_count for batch in consumer.batches), (
            "no batch has a `raw_count`: set it to the number of records of the source in the batch"
        )
        assert sum(batch.raw_bytes for batch in consumer.batches), (
            "no batch has `raw_bytes`, by which the memory of a job is bounded: set it to the bytes that the source sent"
        )

    @on_case
    async def test_the_loop_is_not_blocked(self, case: PublisherCase) -> None:
        """Check that a run does not block the event loop. Code that waits or computes for long must run in a thread."""
        longest = []
        for _ in range(TIMED_RUNS):
            steps = _Steps()
            await steps.of(run_until_complete(await case.publisher(), WatchedConsumer(RecordingConsumer())))
            longest.append(steps.longest)
        assert min(longest) < MAX_STEP_SECONDS, (
            f"a run blocked the event loop for {min(longest):.1f} s: call what blocks with asyncio.to_thread"
        )

    @on_case
    async def test_a_slow_consumer_is_the_back_pressure(self, case: PublisherCase) -> None:
        """Check that the publisher gives the next batch only when the consumer has returned."""
        await _check_everything_is_delivered(case, SlowConsumer(0.1))

    @on_case
    async def test_a_cancelled_run_leaves_nothing_behind_and_can_resume(self, case: PublisherCase) -> None:
        """Check that a cancelled run ends at once and leaves no task, wherever it was interrupted.

        The next run must neither lose nor repeat a record.
        """
        publisher, consumer = await case.publisher(), SlowConsumer()
        before = asyncio.all_tasks()
        for steps in CANCEL_AFTER_STEPS:
            await cancel_after(steps, publisher, consumer)
            left = {task for task in asyncio.all_tasks() - before if not self.is_of_source(task)}
            assert not left, (
                f"a run that was cancelled left the tasks {left}: cancel and await them in a `finally` of `run`, or let "
                "`is_of_source` of the contract tell which tasks are those of a server of the test"
            )
        await run_to_end(publisher, consumer)
        check_payloads(consumer.payloads, case.payloads, "after runs that were cancelled, ")

    @on_case
    async def test_an_error_of_the_consumer_is_raised(self, case: PublisherCase) -> None:
        """Check that the publisher raises an error of its consumer. The job decides what to do about the error."""
        publisher = await case.publisher()
        try:
            await run_to_end(publisher, BrokenConsumer())
        except BrokenConsumer.Error:
            return
        raise AssertionError(SWALLOWED)

    @on_case
    async def test_observers_see_every_batch_and_the_end(self, case: PublisherCase) -> None:
        """Check that observers (`publisher.subscribe`) see every batch and the end of the shard."""
        from reactivex import Observer

        publisher, consumer, seen = await case.publisher(), RecordingConsumer(), list[RecordBatch | str]()
        publisher.subscribe(Observer(seen.append, on_completed=lambda: seen.append("end")))
        await run_to_end(publisher, consumer)
        expected = [*consumer.batches, "end"]
        assert seen == expected, (
            f"observers saw {len(seen)} of {len(expected)} events: `run` gives each batch to its consumer, and ends in COMPLETE"
        )

    @on_case
    async def test_discovery_lists_the_shard_once(self, case: PublisherCase) -> None:
        """Check the factory's `discover`. If it lists shards, the case's shard must be among them.

        For a stream that does not exist it must return no shards, or raise an error of this library.
        """
        listed = await shards_listed_by(case.factory, case.shard.stream)
        if listed is None:
            return
        names = [shard.shard_id for shard in listed]
        assert case.shard.shard_id in names, (
            f"`discover` lists {names}, and not the shard '{case.shard.shard_id}' of the case"
        )
        unknown = f"{case.shard.stream}-that-does-not-exist"
        try:
            await case.factory.discover(unknown)
        except RecordPublisherError:
            pass
        except Exception as error:
            raise AssertionError(
                f"`discover` of a stream that does not exist raised {describe_error(error)}: raise StreamNotFoundError"
            ) from error

    @on_case
    async def test_a_shard_that_is_listed_as_open_does_not_end(self, case: PublisherCase) -> None:
        """Check that a run does not end in COMPLETE while its shard is listed as open. A job would never read the shard again.

        The test reads the case's shard, and some open shards for a second each.
        """
        listed = await shards_listed_by(case.factory, case.shard.stream)
        if listed is None or case.factory.ends_open_shards:
            return
        is_open = _open_shards(listed)
        own = [shard for shard in listed if shard.key == case.shard.key]
        for shard in [*own, *(shard for shard in is_open if shard.key != case.shard.key)][:READ_SHARDS]:
            consumer = RecordingConsumer()
            publisher = await make_publisher(case.factory, shard, StartingPosition.trim_horizon(), ShardMetrics())
            if not await _ends_within(OPEN_SECONDS, publisher, consumer):
                continue
            children = [child for batch in consumer.batches for child in batch.child_shards]
            after = _open_shards(await shards_listed_by(case.factory, case.shard.stream) or [])
            assert children or shard.key not in {each.key for each in after}, (
                f"`run` returned COMPLETE for {shard.key}, which `discover` lists as open and without children: later records would never "
                "be read. Let `discover` list it with closed=True once nothing more comes, name its `child_shards` in the last batch, or "
                "let `run` wait for records"
            )

    @on_case
    async def test_shards_that_the_stream_no_longer_lists_are_closed(self, case: PublisherCase) -> None:
        """Check that the shards from `unlisted_shards` are marked as closed and unlisted. A job would wait for shards that are not."""
        stream = case.shard.stream
        listed = await shards_listed_by(case.factory, stream) or [case.shard]
        names = {shard.shard_id for shard in listed}
        joined = await with_unlisted(case.factory, stream, listed)
        wrong = [shard for shard in joined if shard.shard_id not in names and not (shard.closed and shard.is_unlisted)]
        assert not wrong, (
            f"`unlisted_shards` returned {wrong[0]}: set `closed` and `is_unlisted` of a shard that the stream no longer lists"
        )

    @on_case
    async def test_what_doctor_asks_of_a_factory_has_the_right_type(self, case: PublisherCase) -> None:
        """Check `endpoint_url` and `checks`, which `recordpublisher doctor` calls. Each check must return a sentence or None."""
        await check_answers_for_doctor(case.factory, case.shard.stream)

    @on_case
    async def test_the_oldest_record_is_not_behind_the_first_one(self, case: PublisherCase) -> None:
        """Check that the oldest record that the factory reports is not newer than the first record of the shard.

        A job compares the oldest record with its position to find out whether records are lost.
        """
        oldest = await oldest_record_of(case.factory, case.shard)
        await oldest_retained_of(case.factory, case.shard.stream)
        if oldest is None or oldest.sequence is None:
            return
        consumer = RecordingConsumer()
        await _run_case_to_end(case, consumer)
        first = next(batch for batch in consumer.batches if len(batch)).records[0]
        order_of = case.factory.order_of
        assert order_of(oldest.sequence) <= order_of(first.sequence_number), (
            f"`oldest_record` returned '{oldest.sequence}', which comes after the shard's first record '{first.sequence_number}'"
        )

    @on_case
    async def test_it_reads_everything_whatever_it_hears_of_lost_records(self, case: PublisherCase) -> None:
        """Check that the publisher reads all records, whichever time of an earlier read it gets by `set_seen`."""
        publisher, consumer = await case.publisher(), RecordingConsumer()
        publisher.set_seen(None)
        publisher.set_seen(int(time.time() * 1000))
        await run_to_end(publisher, consumer)
        check_payloads(consumer.payloads, case.payloads)


async def _run_case_to_end(case: PublisherCase, consumer: BatchConsumer) -> None:
    await run_to_end(await case.publisher(), consumer)


def _open_shards(listed: Sequence[Shard]) -> list[Shard]:
    """Return the shards that are listed as open and have no children."""
    parents = {parent for shard in listed for parent in shard.parents}
    return [shard for shard in listed if not shard.closed and shard.shard_id not in parents]


async def _ends_within(seconds: float, publisher: RecordPublisher, consumer: BatchConsumer) -> bool:
    """Run a publisher for at most `seconds`. Return whether its run ended in COMPLETE."""
    watched = WatchedConsumer(consumer)
    running = asyncio.create_task(run_until_complete(publisher, watched))
    try:
        await asyncio.wait([running], timeout=seconds)
        has_ended = running.done()
    finally:
        await abandon(running, watched)
    if has_ended:
        running.result()
    return has_ended


async def _read_from(case: PublisherCase, start: StartingPosition) -> list[bytes]:
    consumer = RecordingConsumer()
    await run_to_end(await case.publisher(start), consumer)
    return consumer.payloads


async def _check_everything_is_delivered(case: PublisherCase, consumer: RecordingConsumer) -> None:
    await _run_case_to_end(case, consumer)
    check_payloads(consumer.payloads, case.payloads)


class _Steps:
    """Measures for how long a coroutine blocks the event loop between two awaits."""

    longest = 0.0

    @types.coroutine
    def of(self, running: Coroutine[Any, Any, None]) -> Generator[Any, Any, None]:
        """Run the coroutine. The longest time between two awaits becomes `longest` (seconds)."""
        error: BaseException | None = None
        while True:
            began = time.perf_counter()
            try:
                waits_for = running.send(None) if error is None else running.throw(error)
            except StopIteration:
                return
            finally:
                self.longest = max(self.longest, time.perf_counter() - began)
            error = None
            try:
                yield waits_for
            except BaseException as thrown:  # A CancelledError is meant for the coroutine, so it is passed on.
                error = thrown
