"""FanOutRecordPublisher on virtual time: positions, ends, errors, back-pressure (P1, P2, P4, P6, F1-F7, F9-F11)."""

import asyncio

import pytest
from fanout_script import (
    ARN,
    SHARD,
    SILENCE,
    Bench,
    Pause,
    event,
    in_use,
    network,
    not_found,
    record,
    shard_end,
    throttled,
)
from kpl import aggregate

from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.errors import (
    ConsumerError,
    DataLossError,
    ExpiredIteratorError,
    FatalKinesisError,
    ImpossibleStateError,
    RetriesExhaustedError,
    StreamNotFoundError,
    TransientError,
)
from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition
from recordpublisher.publishers.shards import HashRange, Shard
from recordpublisher.publishers.wire import ReadAnswer

from virtual_time import VirtualLoop, run_virtual

END = (shard_end(),)


def after(sequence):
    return StartingPosition(PositionType.AFTER_SEQUENCE_NUMBER, str(sequence))


# --- events become batches ----------------------------------------------------------------------------------------------------------


def test_an_event_becomes_one_batch_with_its_position_behind_the_last_record():
    bench = Bench((event(1, 2, 3, behind=123), shard_end()))
    assert bench.read_all() is RunResult.COMPLETE
    first = bench.batches[0]
    assert first.sequence_numbers == ["1", "2", "3"]
    assert first.read_position == SequenceNumber("3")
    assert (first.millis_behind_latest, first.raw_count, first.raw_bytes) == (123, 3, 12)


def test_f6_an_empty_event_is_handed_over_and_moves_the_position_by_its_continuation():
    bench = Bench((event(go_on=70),), END)
    bench.read_all()
    assert bench.batches[0].read_position == SequenceNumber("70", continuation=True)
    assert bench.ports.positions == [StartingPosition.trim_horizon(), after(70)]


def test_records_arrive_once_and_in_order_over_many_subscriptions():
    subscriptions = [(event(n, n + 1), event(n + 2)) for n in range(0, 120, 3)]
    bench = Bench(*subscriptions, END)
    bench.read_all()
    assert bench.sequences == [str(n) for n in range(120)]
    assert len(bench.ports.calls) == 41


def test_a1_metrics_count_reads_records_bytes_and_subscriptions():
    bench = Bench((event(1, 2, behind=50),), (event(3, behind=7), shard_end()))
    bench.read_all()
    metrics = bench.metrics
    assert (metrics.reads, metrics.number_of_aggregated_records, metrics.number_of_deaggregated_records) == (3, 3, 3)
    assert (metrics.bytes_read, metrics.bytes_per_read) == (12, 0)
    assert (metrics.resubscribes, metrics.subscribed, metrics.retries) == (1, 0, 0)


def test_a1_subscribed_is_one_exactly_while_a_subscription_is_open():
    seen = []
    bench = Bench((lambda: seen.append(bench.metrics.subscribed), event(1)), END)
    bench.read_all()
    assert (seen, bench.metrics.subscribed) == ([1], 0)


# --- where to go on (P1, P2, P4) ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "position",
    [
        StartingPosition.trim_horizon(),
        StartingPosition.latest(),
        StartingPosition.at_timestamp(1_600_000_000_000),
        StartingPosition(PositionType.AT_SEQUENCE_NUMBER, "5"),
        after(5),
    ],
)
def test_p1_the_first_subscription_starts_where_it_is_told(position):
    bench = Bench(END)
    bench.read_all(position)
    assert bench.ports.positions == [position]


def test_p1_the_next_subscription_starts_behind_the_answered_position_and_nothing_else():
    bench = Bench((event(1, 2, go_on=999),), END)
    bench.read_all()
    assert bench.ports.positions[1] == after(2)


def test_p1_a_consumer_that_took_half_a_batch_gets_the_rest_again():
    bench = Bench((event(1, 2, 3), event(4)), (event(2, 3), shard_end()))

    async def half(batch):
        await bench.take(batch)
        return SequenceNumber("1") if len(bench.batches) == 1 else batch.read_position

    bench.read_all(consumer=half)
    assert bench.sequences == ["1", "2", "3", "2", "3"]
    assert bench.ports.positions[1] == after(1)


def test_p1_half_of_the_last_batch_taken_is_not_the_end_of_the_shard():
    bench = Bench((shard_end(1, 2),), (shard_end(2),))

    async def half(batch):
        await bench.take(batch)
        return SequenceNumber("1") if len(bench.batches) == 1 else batch.read_position

    assert bench.read_all(consumer=half) is RunResult.COMPLETE
    assert bench.sequences == ["1", "2", "2"]


def test_p4_a_timestamp_start_survives_answers_of_none():
    start = StartingPosition.at_timestamp(1_600_000_000_000)

    async def keeps_nothing(batch):
        return None

    bench = Bench((event(go_on=1), event(go_on=2)), (event(go_on=3),), END)
    bench.read_all(start, keeps_nothing)
    assert bench.ports.positions == [start, start, start]


# --- how a subscription ends (F2, F9) -----------------------------------------------------------------------------------------------


def test_f2_the_end_of_the_shard_completes_after_its_last_batch_was_taken():
    children = (Shard("orders", "shardId-000000000001", (SHARD.shard_id,)),)
    bench = Bench((event(1), shard_end(2, children=children)))
    assert bench.read_all() is RunResult.COMPLETE
    assert bench.sequences == ["1", "2"]
    assert bench.batches[-1].child_shards == children
    assert bench.ports.opened[0].closed


def test_f2_a_finished_shard_stays_finished_without_another_call():
    bench = Bench(END)

    async def twice():
        publisher = await bench.publisher()
        return [await publisher.run(bench.take), await publisher.run(bench.take)]

    assert run_virtual(twice()) == [RunResult.COMPLETE, RunResult.COMPLETE]
    assert len(bench.ports.calls) == 1


def test_f2_a_clean_end_is_never_the_end_of_the_shard():
    bench = Bench((event(1),))

    async def once():
        return await (await bench.publisher()).run(bench.take)

    assert run_virtual(once()) is RunResult.INCOMPLETE


def test_f9_the_next_call_comes_five_seconds_after_the_last_success():
    bench = Bench((event(1),), (event(2),), END)
    bench.read_all()
    assert bench.ports.gaps == [5, 5]


def test_f9_after_five_minutes_the_next_call_comes_at_once():
    bench = Bench((event(1), *[Pause(5), event(go_on=2)] * 60), END)
    bench.read_all()
    assert bench.ports.gaps == [300]


def test_f9_failed_calls_are_a_second_apart_however_short_the_backoff():
    bench = Bench(network(), network(), END, draw=0.0)
    bench.read_all()
    assert bench.ports.gaps == [1, 1]


# --- errors (F3, F10, F11) ----------------------------------------------------------------------------------------------------------


def test_f3_a_broken_subscription_is_opened_again_from_the_answered_position():
    bench = Bench((event(1), network("BadChecksum")), (event(2), shard_end()))
    assert bench.read_all() is RunResult.COMPLETE
    assert bench.ports.positions[1] == after(1)
    assert (bench.metrics.retries, bench.ports.opened[0].closed > 0) == (1, True)


def test_f3_backoff_grows_with_each_failure_in_a_row():
    bench = Bench(*[network()] * 4, END, **{"flink.shard.subscribetoshard.backoff.max": 60_000})
    bench.read_all()
    assert bench.ports.gaps == [1, 1.5, 2.25, 3.375]


def test_f3_the_budget_ends_the_run_with_the_last_failure_as_cause():
    last = network("TheLast")
    bench = Bench(*[network()] * 3, last, **{"flink.shard.subscribetoshard.maxretries": 3})
    with pytest.raises(RetriesExhaustedError, match="SubscribeToShard of orders/shardId-000000000000: 4 failures") as e:
        bench.read_all()
    assert e.value.__cause__ is last


def test_f3_any_event_resets_the_budget_an_empty_one_included():
    failing = [(event(go_on=n), network()) for n in range(20)]
    bench = Bench(*failing, END, **{"flink.shard.subscribetoshard.maxretries": 1})
    assert bench.read_all() is RunResult.COMPLETE
    assert bench.metrics.retries == 20


def test_f3_a_subscription_without_any_event_does_not_reset_the_budget():
    bench = Bench(*[(network(),)] * 3, **{"flink.shard.subscribetoshard.maxretries": 2})
    with pytest.raises(RetriesExhaustedError):
        bench.read_all()


def test_f3_throttling_is_retried_and_counted_apart():
    bench = Bench(throttled(), (event(1), throttled()), END)
    bench.read_all()
    assert (bench.metrics.throttles, bench.metrics.retries) == (2, 2)


@pytest.mark.parametrize("script", ["refused", "in-stream"])
def test_f3_access_denied_is_fatal_at_once(script):
    fatal = FatalKinesisError("SubscribeToShard", "AccessDeniedException", "no")
    bench = Bench(fatal if script == "refused" else (event(1), fatal))
    with pytest.raises(FatalKinesisError, match="AccessDenied"):
        bench.read_all()
    assert (len(bench.ports.calls), bench.metrics.subscribed) == (1, 0)
    assert all(subscription.closed for subscription in bench.ports.opened)


def test_f3_a_configured_error_is_retried_without_counting():
    fatal = FatalKinesisError("SubscribeToShard", "AccessDeniedException", "for a while")
    bench = Bench(
        *[fatal] * 10,
        END,
        **{
            "flink.shard.subscribetoshard.maxretries": 1,
            "flink.shard.consumer.error.recoverable[0].exception": "java.net.SocketException",
            "flink.shard.consumer.error.recoverable[1].exception": "AccessDeniedException",
        },
    )
    assert bench.read_all() is RunResult.COMPLETE
    assert bench.metrics.retries == 10


def test_f3_in_use_waits_out_five_seconds_and_costs_no_budget():
    bench = Bench(*[in_use()] * 3, END, draw=0.0, **{"flink.shard.subscribetoshard.maxretries": 0})
    bench.read_all()
    assert bench.ports.gaps == [5, 5, 5]
    assert bench.metrics.retries == 0


def test_f10_a_few_take_overs_are_a_restart():
    taken = [(event(n), in_use()) for n in range(4)]
    bench = Bench(*taken, END)
    assert bench.read_all() is RunResult.COMPLETE
    assert bench.sequences == ["0", "1", "2", "3"]


def test_f10_repeated_take_over_names_the_consumer():
    bench = Bench(*[(event(n), in_use()) for n in range(5)])
    with pytest.raises(ConsumerError, match=f"taken over 5 times in a row.*{ARN}"):
        bench.read_all()


def test_f10_a_subscription_that_ends_otherwise_breaks_the_row():
    taken = [(event(n), in_use()) for n in range(4)]
    bench = Bench(*taken, (event(4),), *taken, END)
    assert bench.read_all() is RunResult.COMPLETE


def test_f10_being_refused_for_a_minute_names_the_consumer():
    bench = Bench(*[in_use()] * 20, draw=0.0)
    with pytest.raises(ConsumerError, match=ARN):
        bench.read_all()
    assert sum(bench.ports.gaps) == 55


def test_f11_an_expired_iterator_cannot_be():
    bench = Bench(ExpiredIteratorError("SubscribeToShard", "ExpiredIteratorException", "?"))
    with pytest.raises(ImpossibleStateError, match="no iterator"):
        bench.read_all()


def test_f11_two_runs_at_once_cannot_be():
    bench = Bench((SILENCE,))

    async def two():
        publisher = await bench.publisher()
        async with asyncio.TaskGroup() as group:
            first = group.create_task(publisher.run(bench.take))
            await asyncio.sleep(1)
            with pytest.raises(ImpossibleStateError, match="two runs"):
                await publisher.run(bench.take)
            first.cancel()

    run_virtual(two())


def test_an_error_of_the_consumer_comes_out_as_it_is_and_is_not_retried():
    own = TransientError("PutRecords", "Sink", "the sink's own trouble, not the subscription's")

    async def failing(batch):
        raise own

    bench = Bench((event(1), SILENCE))
    with pytest.raises(TransientError) as caught:
        bench.read_all(consumer=failing)
    assert caught.value is own
    assert (len(bench.ports.calls), bench.ports.opened[0].closed > 0) == (1, True)


# --- what is gone (F4) --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", ["refused", "in-stream"])
def test_f4_a_deleted_consumer_is_registered_again_and_read_on_with(script):
    bench = Bench()
    gone = not_found() if script == "refused" else (lambda: bench.ports.consumers.remove("app"), not_found())
    bench.ports.script = [(event(1),), gone, (event(2), shard_end())]

    async def read():
        publisher = await bench.publisher()
        await publisher.run(bench.take)
        if script == "refused":
            bench.ports.consumers.remove("app")
        while await publisher.run(bench.take) is RunResult.INCOMPLETE:
            pass

    run_virtual(read())
    assert bench.sequences == ["1", "2"]
    assert [call.arn[-5:] for call in bench.ports.calls] == ["app:1", "app:1", "app:2"]
    assert bench.ports.positions[2] == after(1)


def test_f4_a_lost_subscription_is_closed_before_anybody_looks_closer():
    bench = Bench((not_found(),), END)
    closed = []
    bench.ports.consumers.called = lambda call: closed.append((call, [item.closed for item in bench.ports.opened]))
    bench.read_all()
    assert ("list", [1]) in closed


def test_f4_a_consumer_deleted_under_registration_none_is_a_clear_error():
    bench = Bench(not_found(), **{"flink.stream.efo.registration": "NONE", "flink.stream.efo.consumerarn.orders": ARN})
    with pytest.raises(ConsumerError, match=f"not registered.*{ARN}.*NONE"):
        bench.read_all()
    assert bench.ports.consumers.count("register") == 0


def test_f4_a_deleted_stream_is_told_as_such():
    bench = Bench()
    bench.ports.script = [(bench.ports.streams.clear, not_found())]
    with pytest.raises(StreamNotFoundError, match="orders"):
        bench.read_all()


def test_f4_a_shard_past_retention_is_data_loss_and_never_complete():
    bench = Bench((not_found(),))
    bench.ports.shards = []
    with pytest.raises(DataLossError, match="orders/shardId-000000000000 is gone"):
        bench.read_all()


def test_f4_something_not_found_that_is_there_is_tried_again_within_the_budget():
    bench = Bench(not_found(), (event(1), shard_end()))
    assert bench.read_all() is RunResult.COMPLETE
    bench = Bench(*[not_found()] * 3, **{"flink.shard.subscribetoshard.maxretries": 2})
    with pytest.raises(RetriesExhaustedError):
        bench.read_all()


def test_f4_a_consumer_that_vanishes_again_and_again_is_an_error():
    bench = Bench()
    bench.ports.script = [(lambda: bench.ports.consumers.remove("app"), not_found())] * 10
    with pytest.raises(ConsumerError, match="vanished 6 times in a row"):
        bench.read_all()


# --- time-outs and back-pressure (F1, F5) -------------------------------------------------------------------------------------------


def test_f5_silence_for_twenty_seconds_is_a_half_open_connection():
    bench = Bench((event(1), SILENCE), (event(2), shard_end()))
    bench.read_all()
    assert bench.ports.gaps == [20 + 1]  # the deadline and the backoff
    assert (bench.sequences, bench.metrics.retries) == (["1", "2"], 1)
    assert bench.ports.opened[0].closed


def test_f5_an_event_every_nineteen_seconds_is_not_silence():
    bench = Bench((*[Pause(19), event(go_on=1)] * 5, shard_end()))
    bench.read_all()
    assert len(bench.ports.calls) == 1


def test_f5_a_suspended_process_reads_before_it_judges():
    def suspended():
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.call_later(5, loop.suspend, 600)

    bench = Bench((suspended, Pause(606), event(1), shard_end()))
    bench.read_all()
    assert (bench.sequences, len(bench.ports.calls)) == (["1"], 1)


def test_f5_the_deadline_does_not_run_while_the_consumer_works():
    async def slow(batch):
        await asyncio.sleep(50)
        return batch.read_position

    bench = Bench((event(1), Pause(15), event(2), shard_end()))
    bench.read_all(consumer=slow)
    assert len(bench.ports.calls) == 1


def test_f1_nothing_is_read_while_the_consumer_works():
    read = []

    async def slow(batch):
        await asyncio.sleep(30)
        read.append(bench.ports.opened[0].read)
        return batch.read_position

    bench = Bench((event(1), event(2), event(3), shard_end()))
    bench.read_all(consumer=slow)
    assert read == [1, 2, 3, 4]


def test_f5_a_subscription_left_unread_for_a_minute_is_given_back_and_opened_when_there_is_room():
    closed = []

    async def very_slow(batch):
        await bench.take(batch)
        if len(bench.batches) == 1:
            await asyncio.sleep(59)
            closed.append(bench.ports.opened[0].closed)
            await asyncio.sleep(61)
            closed.append(bench.ports.opened[0].closed)
        return batch.read_position

    bench = Bench((event(1), event(2)), (event(2), shard_end()), **{"flink.shard.subscribetoshard.maxretries": 0})
    bench.read_all(consumer=very_slow)
    assert closed == [0, 1]
    assert (bench.sequences, bench.ports.positions[1]) == (["1", "2"], after(1))
    assert (bench.ports.gaps, bench.metrics.retries) == ([120], 0)


def test_f5_a_break_after_our_own_back_pressure_costs_no_budget():
    async def slow(batch):
        await asyncio.sleep(30)
        return batch.read_position

    bench = Bench((event(1), network()), END, **{"flink.shard.subscribetoshard.maxretries": 0})
    assert bench.read_all(consumer=slow) is RunResult.COMPLETE


def test_the_last_batch_of_a_shard_may_take_longer_than_the_unread_time_out():
    async def slow(batch):
        await asyncio.sleep(300)
        return batch.read_position

    bench = Bench((shard_end(1),))
    assert bench.read_all(consumer=slow) is RunResult.COMPLETE


def test_opening_a_subscription_has_a_deadline():
    bench = Bench(SILENCE, END)
    assert bench.read_all() is RunResult.COMPLETE
    assert bench.ports.gaps == [61]
    bench = Bench(SILENCE, **{"flink.shard.subscribetoshard.maxretries": 0})
    with pytest.raises(RetriesExhaustedError, match="Timed out acquiring subscription - orders/shardId-000000000000"):
        bench.read_all()


# --- stopping -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "cancel_after"),
    [
        (SILENCE, 1),  # while subscribing
        ((SILENCE,), 1),  # while reading
        ((event(1), SILENCE), 10),  # while the consumer works
        (network(), 0.5),  # while backing off
    ],
    ids=["subscribing", "reading", "consuming", "backing off"],
)
def test_cancelling_is_clean_at_every_await(script, cancel_after):
    bench = Bench(script)

    async def slow(batch):
        await asyncio.sleep(1_000)

    async def read():
        publisher = await bench.publisher()
        while True:
            await publisher.run(slow)

    async def cancelled():
        task = asyncio.create_task(read())
        await asyncio.sleep(cancel_after)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtual(cancelled())
    assert all(subscription.closed for subscription in bench.ports.opened)
    assert bench.metrics.subscribed == 0


def test_cancelling_stops_between_two_batches_without_reading_more():
    bench = Bench(tuple(event(n) for n in range(128)))

    async def read():
        publisher = await bench.publisher()
        task = asyncio.current_task()
        assert task is not None

        async def eighth_is_enough(batch):
            await bench.take(batch)
            if len(bench.batches) == 8:
                task.cancel()
            await asyncio.sleep(0)
            return batch.read_position

        await publisher.run(eighth_is_enough)

    with pytest.raises(asyncio.CancelledError):
        run_virtual(read())
    assert (len(bench.batches), bench.ports.opened[0].read) == (8, 8)


def test_a_run_after_the_factory_closed_is_cancelled_without_a_call():
    bench = Bench()

    async def closed():
        publisher = await bench.publisher()
        await bench.made.close()
        return await publisher.run(bench.take)

    assert run_virtual(closed()) is RunResult.CANCELLED
    assert bench.ports.calls == []


def test_f7_a_replaced_subscription_cannot_reach_us():
    """Events are pulled from the one open subscription: what an abandoned one would still say is never asked for."""
    bench = Bench((event(1), SILENCE, event(66), network("late")), (event(2), shard_end()))
    bench.read_all()
    assert bench.sequences == ["1", "2"]
    assert bench.ports.opened[0].read == 1


# --- aggregates (P2, P4, S4) --------------------------------------------------------------------------------------------------------


def aggregated(sequence, *parts, go_on=-1):
    data = aggregate(*[("key", part) for part in parts])
    return ReadAnswer([record(sequence, data)], 0, None, None if go_on is None else str(sequence))


def test_aggregates_are_taken_apart_and_counted():
    bench = Bench((aggregated(1, b"a", b"b", b"c"), shard_end()))
    bench.read_all()
    assert bench.batches[0].data == [b"a", b"b", b"c"]
    assert bench.batches[0].sub_sequence_numbers == [0, 1, 2]
    assert bench.batches[0].read_position == SequenceNumber("1")
    assert (bench.metrics.number_of_aggregated_records, bench.metrics.number_of_deaggregated_records) == (1, 3)


def test_p2_a_restart_inside_an_aggregate_drops_what_was_done():
    bench = Bench((aggregated(1, b"a", b"b", b"c"), shard_end()))
    bench.read_all(StartingPosition.after(SequenceNumber("1", 0)))
    assert bench.ports.positions[0].type is PositionType.AT_SEQUENCE_NUMBER
    assert bench.batches[0].data == [b"b", b"c"]


def test_p2_empty_events_before_the_aggregate_do_not_lose_the_place_inside_it():
    bench = Bench((event(go_on=1),), (aggregated(2, b"a", b"b"), shard_end()))
    bench.read_all(StartingPosition.after(SequenceNumber("2", 0)))
    assert bench.batches[-2].data == [b"b"]


def test_p2_a_consumer_that_stopped_inside_an_aggregate_gets_the_rest_again():
    bench = Bench((aggregated(1, b"a", b"b", b"c"), event(2)), (aggregated(1, b"a", b"b", b"c"), shard_end()))

    async def first_only(batch):
        await bench.take(batch)
        return SequenceNumber("1", 0) if len(bench.batches) == 1 else batch.read_position

    bench.read_all(consumer=first_only)
    assert bench.ports.positions[1].type is PositionType.AT_SEQUENCE_NUMBER
    assert [batch.data for batch in bench.batches] == [[b"a", b"b", b"c"], [b"b", b"c"], []]


def test_p2_answering_with_the_last_sub_record_is_not_going_back():
    bench = Bench((aggregated(1, b"a", b"b"), event(2), shard_end()))

    async def by_record(batch):
        last = batch.records[-1:]
        return SequenceNumber(last[0].sequence_number, last[0].sub_sequence_number) if last else None

    bench.read_all(consumer=by_record)
    assert len(bench.ports.calls) == 1


def test_p4_a_batch_that_deaggregates_to_nothing_is_handed_over_with_its_position():
    foreign = Shard("orders", SHARD.shard_id, hash_range=HashRange(0, 1))
    start = StartingPosition.at_timestamp(1_600_000_000_000)
    bench = Bench((aggregated(1, b"a"),), (aggregated(1, b"a"), shard_end()))

    async def read(answer):
        publisher = await bench.factory().create(foreign, start, bench.metrics)

        async def take(batch):
            await bench.take(batch)
            return answer

        while await publisher.run(take) is RunResult.INCOMPLETE:
            pass

    run_virtual(read(None))
    assert (len(bench.batches[0]), bench.batches[0].raw_count) == (0, 1)
    assert bench.batches[0].read_position == SequenceNumber("1")
    assert bench.ports.positions == [start, start]
    assert bench.metrics.foreign_sub_records == 2


def test_s4_with_automatic_distribution_no_sub_record_is_foreign():
    foreign = Shard("orders", SHARD.shard_id, hash_range=HashRange(0, 1))
    bench = Bench((aggregated(1, b"a"), shard_end()))
    bench.ports.do_keys_decide = False

    async def read():
        publisher = await bench.factory().create(foreign, StartingPosition.trim_horizon(), bench.metrics)
        await publisher.run(bench.take)

    run_virtual(read())
    assert bench.batches[0].data == [b"a"]


def test_f1_taking_a_large_aggregate_apart_lets_others_run():
    bench = Bench((aggregated(1, *[b"x"] * 50_000), shard_end()))
    turns = []

    async def other():
        while True:
            turns.append(len(bench.batches))
            await asyncio.sleep(0)

    async def read():
        publisher = await bench.publisher()
        task = asyncio.create_task(other())
        await publisher.run(bench.take)
        task.cancel()

    run_virtual(read())
    assert turns.count(0) > 10
