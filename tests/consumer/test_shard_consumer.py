"""ShardConsumer: runs a publisher, decorates batches once, returns positions, reports the shard's end."""

import asyncio
import re
import weakref
from contextlib import suppress
from dataclasses import replace

import pytest
from msgspec import structs

from recordpublisher.consumer.deserialization import JsonDeserializer, StreamDeserializer
from recordpublisher.consumer.event_time import ArrivalTimestamps, FieldTimestamps
from recordpublisher.consumer.shard_consumer import BatchDecorator, ShardConsumer
from recordpublisher.consumer.watermark_strategies import BoundedOutOfOrderness
from recordpublisher.publishers.base import RecordPublisher, RunResult
from recordpublisher.publishers.errors import DeserializationError, PluginError
from recordpublisher.publishers.properties.job_properties import OnBadRecord
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing import run_virtual

from fakes.batches import batch


class Script(RecordPublisher):
    """Passes on scripted batches and results; records the positions and budgets it gets."""

    def __init__(self, *steps):
        self._steps = list(steps)
        self.returned, self.budgets = [], []

    def set_read_budget(self, held_bytes):
        self.budgets.append(held_bytes)

    async def run(self, consumer):
        while not isinstance(step := self._steps.pop(0), RunResult):
            self.returned.append(await consumer(step))
        return step


class Output:
    def __init__(self):
        self.batches, self.ended = [], None

    def first_read_budget(self):
        return 11

    async def put(self, given):
        self.batches.append(given)
        return 22

    def end(self, children):
        self.ended = list(children)


def decorator(times=None, metrics=None, **more):
    strategy = BoundedOutOfOrderness(Properties())
    options = {"on_poison": OnBadRecord.FAIL, "future_limit_ms": 3_600_000, **more}
    return BatchDecorator(
        JsonDeserializer(), times or ArrivalTimestamps(), strategy, metrics or ShardMetrics(), **options
    )


async def run(*steps, with_decorator=None):
    publisher, output = Script(*steps), Output()
    result = await ShardConsumer(publisher, with_decorator or decorator(), output).run()
    return publisher, output, result


async def test_a_batch_of_another_shard_is_refused_and_an_equal_shard_is_taken():
    own, output = batch(b"1").shard, Output()
    given = [batch(b"1"), batch(b"2", shard_id="shardId-7", first=2), RunResult.COMPLETE]
    with pytest.raises(
        PluginError, match=f"Script gave a batch of {own.stream}/shardId-7, but was created to read {own.key}"
    ):
        await ShardConsumer(Script(*given), decorator(), output, shard=replace(own, closed=True)).run()

    assert len(output.batches) == 1


async def test_batches_are_passed_on_with_values_times_and_watermarks():
    _, output, _ = await run(batch(b"1", b"2"), RunResult.CANCELLED)

    assert output.batches[0].values == [1, 2]
    assert output.batches[0].event_times == [1_700_000_000_500] * 2
    assert output.batches[0].watermarks == [1_700_000_000_500] * 2


async def test_the_returned_position_is_the_batchs_read_position():  # P1
    first, empty = batch(b"1", b"2"), batch()
    publisher, _, _ = await run(first, empty, RunResult.CANCELLED)

    assert publisher.returned == [first.read_position, None]


async def test_it_runs_again_until_the_end():  # P1
    _, output, result = await run(RunResult.INCOMPLETE, batch(b"1"), RunResult.INCOMPLETE, RunResult.COMPLETE)

    assert result is RunResult.COMPLETE
    assert output.ended == []


async def test_the_children_of_the_last_read_are_passed_on():  # S3
    child = Shard("orders", "child", ("shardId-0",))
    _, output, _ = await run(replace(batch(b"1"), child_shards=(child,)), RunResult.COMPLETE)

    assert output.ended == [child]


async def test_a_cancelled_publisher_does_not_end_the_shard():
    _, output, result = await run(RunResult.CANCELLED)

    assert result is RunResult.CANCELLED
    assert output.ended is None


async def test_a_read_budget_is_set_before_the_first_read_and_after_each():  # P6
    publisher, _, _ = await run(batch(b"1"), batch(), RunResult.CANCELLED)

    assert publisher.budgets == [11, 22, 22]


async def test_a_batch_that_was_put_is_freed_while_the_output_waits_for_memory():  # P6
    given, held = [], []

    class Waiting(Output):
        def put(self, decorated):
            return self.wait_for_memory()

        async def wait_for_memory(self):
            held.append(given[0]())
            return 22

    class ReleasingScript(Script):
        async def run(self, consumer):
            read = batch(b"1")
            given.append(weakref.ref(read))
            taking = consumer(read)
            del read
            self.returned.append(await taking)
            return RunResult.CANCELLED

    await ShardConsumer(ReleasingScript(), decorator(), Waiting()).run()
    assert held == [None]


async def test_an_invalid_event_time_makes_a_poisoned_record():  # S7
    with pytest.raises(DeserializationError, match="field 'at'") as raised:
        await run(batch(b'{"at": 1}', b"{}"), with_decorator=decorator(FieldTimestamps("at")))

    assert raised.value.sequence_number == "2"


async def test_skipped_records_move_the_position_and_not_the_watermark():  # S7
    metrics = ShardMetrics()
    given = decorator(FieldTimestamps("at"), metrics, on_poison=OnBadRecord.SKIP, future_limit_ms=-1)
    publisher, output, _ = await run(
        batch(b'{"at": 5}', b"{", b'{"at": 9}', b"{}"), batch(b"{}", first=5), RunResult.CANCELLED, with_decorator=given
    )

    assert [list(each.event_time_column) for each in output.batches] == [[5, 9], []]
    assert [each.watermark for each in output.batches] == [9, None]
    assert [response.sequence for response in publisher.returned] == ["4", "5"]
    assert [each.skipped_count for each in output.batches] == [2, 1]
    assert metrics.skipped_records == 0, "they count when the position moves past them"


async def test_future_event_times_are_counted_and_passed_on_unchanged():  # W12
    metrics = ShardMetrics()
    given = decorator(FieldTimestamps("at"), metrics, future_limit_ms=0)
    _, output, _ = await run(batch(b'{"at": 9999999999999}'), RunResult.CANCELLED, with_decorator=given)

    assert output.batches[0].event_times == [9_999_999_999_999]
    assert output.batches[0].watermarks == [1_700_000_000_500]
    assert metrics.future_event_times == 1


async def test_a_deserializer_that_returns_too_few_values_is_an_error():
    class Short(JsonDeserializer):
        def values(self, given):
            return []

    given = decorator()
    given._deserializer = Short()
    with pytest.raises(PluginError, match=r"`Short\.values` returned 0 items for 1 record: return a sequence"):
        await run(batch(b"1"), with_decorator=given)


async def test_a_deserializer_that_has_to_prepare_does_so_before_each_batch():
    class Prepared(JsonDeserializer):
        prepared = ()

        async def prepare(self, given):
            self.prepared = given.data

        def values(self, given):
            assert list(given.data) == list(self.prepared)
            return super().values(given)

    output = Output()
    decorating = BatchDecorator(
        Prepared(),
        ArrivalTimestamps(),
        BoundedOutOfOrderness(Properties()),
        ShardMetrics(),
        on_poison=OnBadRecord.FAIL,
        future_limit_ms=3_600_000,
    )
    await ShardConsumer(Script(batch(b"1"), batch(b"2", b"3", first=2), RunResult.COMPLETE), decorating, output).run()

    assert [list(each.values) for each in output.batches] == [[1], [2, 3]]


class Prepares(JsonDeserializer):
    """Its `prepare` does what the test says."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    def prepare(self, batch):
        return self.how()


async def hang():
    await asyncio.sleep(15)


async def fail():
    raise KeyError("prep")


def prepared_by(how):
    strategy, options = BoundedOutOfOrderness(Properties()), {"on_poison": OnBadRecord.FAIL, "future_limit_ms": 1}
    given = batch(b"1")
    by_stream = StreamDeserializer({given.stream: Prepares(how)})
    return BatchDecorator(by_stream, ArrivalTimestamps(), strategy, ShardMetrics(), **options).prepare(given)


def test_a_deserializer_whose_prepare_hangs_is_named_once_with_its_line(caplog):
    run_virtual(prepared_by(hang))
    (line,) = caplog.messages
    assert re.match(r"`Prepares\.prepare` for \S+ has not returned for 10 s: it waits at \S+:\d+ \(hang\)$", line)


async def test_a_deserializer_whose_prepare_fails_is_named():
    with pytest.raises(KeyError) as caught:
        await prepared_by(fail)
    assert [note.partition(" for ")[0] for note in caught.value.__notes__] == ["`Prepares.prepare`"]


async def test_a_prepare_that_is_not_async_is_refused():
    with pytest.raises(PluginError, match=r"`Prepares\.prepare` returned None: write `async def prepare`"):
        await prepared_by(lambda: None)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([replace(batch(b"1"), read_position=None)], "Script gave 1 record of orders/shardId-0 without read_position"),
        (
            [batch(b"1"), batch(), batch(b"1")],
            "Script goes back in orders/shardId-0: after the position 1 it gave 1 record from",
        ),
        ([None], "Script gave None: the consumer must be called with a RecordBatch"),
    ],
)
async def test_records_that_would_come_again_for_ever_end_the_job(steps, message):  # P1
    with pytest.raises(PluginError, match=message):
        await run(*steps, RunResult.CANCELLED)


async def test_a_publisher_that_never_waits_leaves_the_event_loop_to_others():
    output = Output()
    steps = [batch(b"1", first=number) for number in range(50)]
    running = asyncio.create_task(ShardConsumer(Script(*steps, RunResult.COMPLETE), decorator(), output).run())
    for _ in range(10):
        await asyncio.sleep(0)
    assert 0 < len(output.batches) < 50
    await running
    assert len(output.batches) == 50


def test_a_publisher_that_brings_nothing_is_not_run_again_at_once():
    async def read():
        await run(*[RunResult.INCOMPLETE] * 600, RunResult.COMPLETE)
        return asyncio.get_running_loop().time()

    assert 59 < run_virtual(read()) < 61


class Hurried(Script):
    pass


class Patient(Script):
    """Waits two seconds in each run."""

    async def run(self, consumer):
        await asyncio.sleep(2)
        return await super().run(consumer)


@pytest.mark.parametrize(("publisher", "lines"), [(Hurried, 1), (Patient, 0)])
def test_a_publisher_whose_runs_return_at_once_without_a_batch_is_named_after_a_minute(publisher, lines, caplog):
    async def read():
        steps = [RunResult.INCOMPLETE] * 500 + [batch(b"1")] + [RunResult.INCOMPLETE] * 650 + [RunResult.COMPLETE]
        await ShardConsumer(publisher(*steps), decorator(), Output()).run()

    run_virtual(read())
    words = (
        "`Hurried.run` has only returned INCOMPLETE at once, without a batch, for 60 s: wait in `run` for records, or return "
        "RunResult.COMPLETE at the end of the shard"
    )
    assert caplog.messages == [words] * lines


@pytest.mark.parametrize("arrival", [None, "today", 1_790_000_000_000.0, float("nan"), float("inf")])
@pytest.mark.parametrize("at", [0, -1])
async def test_a_batch_without_times_of_arrival_ends_the_job_and_is_not_poisoned(arrival, at):
    records = list(batch(b"1", b"2").records)
    records[at] = structs.replace(records[at], arrival=arrival)
    given = decorator(on_poison=OnBadRecord.SKIP)
    with pytest.raises(PluginError, match="Script gave a record of orders/shardId-0 without a valid time of arrival"):
        await run(replace(batch(b"1", b"2"), records=records), RunResult.COMPLETE, with_decorator=given)


class DoesNotAwait(Script):
    async def run(self, consumer):
        for step in self._steps:
            consumer(step)
        return RunResult.COMPLETE


@pytest.mark.parametrize("count", [1, 2])
async def test_a_consumer_that_is_not_awaited_ends_the_job(count):
    steps = [batch(b"1", first=number) for number in range(count)]
    with pytest.raises(PluginError, match="DoesNotAwait does not await the consumer: write `await consumer"):
        await ShardConsumer(DoesNotAwait(*steps), decorator(), Output()).run()


class ReturnsNone(Script):
    async def run(self, consumer):
        await super().run(consumer)


async def test_a_run_without_a_result_ends_the_job():
    with pytest.raises(
        PluginError, match=r"ReturnsNone.run returned None: return RunResult.COMPLETE if the shard was read to its end"
    ):
        await ShardConsumer(ReturnsNone(RunResult.COMPLETE), decorator(), Output()).run()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"data": "text"},
            "a record with `data` of orders/shardId-0 that is 'text', of the type str: it must be bytes",
        ),
        ({"sequence_number": 7}, "a record with `sequence_number` .* of the type int: it must be str"),
        ({"partition_key": b"k"}, "a record with `partition_key` .* must be str$"),
    ],
)
async def test_a_value_of_the_wrong_type_in_the_middle_of_a_batch_is_named(changed, told):
    records = list(batch(b"1", b"2", b"3").records)
    records[1] = structs.replace(records[1], **changed)
    with pytest.raises(PluginError, match=f"Script gave {told}"):
        await run(replace(batch(b"1", b"2", b"3"), records=records))


async def test_sequence_numbers_without_an_order_are_told_once(caplog):
    caplog.set_level("WARNING")
    records = [
        structs.replace(each, sequence_number=f"part-{number}") for number, each in enumerate(batch(b"1", b"2").records)
    ]
    batches = [
        replace(
            batch(b"1"), records=[each], read_position=replace(batch(b"1").read_position, sequence=each.sequence_number)
        )
        for each in records
    ]
    for _ in range(2):
        await run(*batches, RunResult.COMPLETE)
    assert [line for line in caplog.messages if "Implement `order_of`" in line] == caplog.messages[:1] != []


async def test_a_record_without_a_key_ends_the_job_unless_the_source_has_such():
    records = [structs.replace(record, partition_key=None) for record in batch(b"1").records]
    given = replace(batch(b"1"), records=records)
    with pytest.raises(
        PluginError,
        match=r"Script gave a record with `partition_key` of orders/shardId-0 that is None.*`keyless = True`",
    ):
        await run(given, RunResult.COMPLETE)
    script = Script(given, RunResult.COMPLETE)
    assert await ShardConsumer(script, decorator(), Output(), keyless=True).run() is RunResult.COMPLETE


async def test_an_arrival_of_none_is_named():
    records = [structs.replace(record, arrival=None) for record in batch(b"1").records]
    with pytest.raises(PluginError, match=r"without a valid time of arrival: it is None\. `arrival` is in seconds"):
        await run(replace(batch(b"1"), records=records), RunResult.COMPLETE)


class CallsInTask(Script):
    """Calls the consumer in tasks that it does not await."""

    async def run(self, consumer):
        self.tasks = []
        for step in self._steps:
            self.tasks.append(asyncio.create_task(consumer(step)))
            await asyncio.sleep(0.01)
        return RunResult.COMPLETE


async def test_a_consumer_that_is_called_while_it_still_waits_for_memory_ends_the_job():
    class Full(Output):
        async def put(self, batch):
            await asyncio.sleep(60)

    script = CallsInTask(*[batch(b"1", first=number) for number in range(3)])
    with pytest.raises(PluginError, match=r"CallsInTask.run continued before the consumer had returned"):
        await ShardConsumer(script, decorator(), Full()).run()
    for task in script.tasks:
        task.cancel()


class CallsInThread(Script):
    """Calls the consumer in the event loop of another thread."""

    async def run(self, consumer):
        await asyncio.to_thread(lambda: asyncio.run(consumer(self._steps[0])))


async def test_a_consumer_that_is_called_in_another_thread_ends_the_job():
    with pytest.raises(PluginError, match="CallsInThread calls the consumer in another event loop or thread"):
        await ShardConsumer(CallsInThread(batch(b"1")), decorator(), Output()).run()


async def test_a_publisher_that_swallowed_its_cancellation_gets_no_further_run_and_puts_nothing():
    class Swallows(Script):
        async def run(self, consumer):
            self.runs = getattr(self, "runs", 0) + 1
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            with suppress(asyncio.CancelledError):
                await consumer(batch(b"1"))
            return RunResult.INCOMPLETE

    output, script = Output(), Swallows()
    running = asyncio.create_task(ShardConsumer(script, decorator(), output).run())
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running], timeout=10)
    assert running.cancelled()
    assert (script.runs, output.batches) == (1, [])
