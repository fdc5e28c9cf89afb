"""FanOutRecordPublisher and errors: retry budgets, take-overs, missing resources (F3, F4, F10, F11)."""

import asyncio

import pytest

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
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.testing.virtual_time import run_virtual

from fakes.fanout_harness import FanOutHarness
from fakes.fanout_service import ARN, SILENCE, event, in_use, network, not_found, shard_end, throttled

END = (shard_end(),)


def after(sequence):
    return StartingPosition(PositionType.AFTER_SEQUENCE_NUMBER, str(sequence))


def test_f3_a_broken_subscription_is_opened_again_at_the_returned_position():
    harness = FanOutHarness((event(1), network("BadChecksum")), (event(2), shard_end()))
    assert harness.read_all() is RunResult.COMPLETE
    assert harness.ports.positions[1] == after(1)
    assert (harness.metrics.retries, harness.ports.opened[0].closed > 0) == (1, True)


def test_f3_backoff_grows_with_each_failure_in_a_row():
    harness = FanOutHarness(*[network()] * 4, END, **{"flink.shard.subscribetoshard.backoff.max": 60_000})
    harness.read_all()
    assert harness.ports.gaps == [1, 1.5, 2.25, 3.375]


def test_f3_an_exhausted_budget_ends_the_run_with_the_last_failure_as_cause():
    last = network("TheLast")
    harness = FanOutHarness(*[network()] * 3, last, **{"flink.shard.subscribetoshard.maxretries": 3})
    with pytest.raises(RetriesExhaustedError, match=r"SubscribeToShard of orders/shardId-000000000000.* 4 times") as e:
        harness.read_all()
    assert e.value.__cause__ is last


def test_f3_any_event_resets_the_budget_an_empty_one_included():
    failing = [(event(continuation=n), network()) for n in range(20)]
    harness = FanOutHarness(*failing, END, **{"flink.shard.subscribetoshard.maxretries": 1})
    assert harness.read_all() is RunResult.COMPLETE
    assert harness.metrics.retries == 20


def test_f3_a_subscription_without_any_event_does_not_reset_the_budget():
    harness = FanOutHarness(*[(network(),)] * 3, **{"flink.shard.subscribetoshard.maxretries": 2})
    with pytest.raises(RetriesExhaustedError):
        harness.read_all()


def test_f3_throttling_is_retried_and_counted_separately():
    harness = FanOutHarness(throttled(), (event(1), throttled()), END)
    harness.read_all()
    assert (harness.metrics.throttles, harness.metrics.retries) == (2, 2)


@pytest.mark.parametrize("script", ["refused", "in-stream"])
def test_f3_access_denied_is_fatal_at_once(script):
    fatal = FatalKinesisError("SubscribeToShard", "AccessDeniedException", "no")
    harness = FanOutHarness(fatal if script == "refused" else (event(1), fatal))
    with pytest.raises(FatalKinesisError, match="AccessDenied"):
        harness.read_all()
    assert (len(harness.ports.calls), harness.metrics.subscribed) == (1, 0)
    assert all(subscription.closed for subscription in harness.ports.opened)


def test_f3_a_configured_error_is_retried_without_counting():
    fatal = FatalKinesisError("SubscribeToShard", "AccessDeniedException", "for a while")
    harness = FanOutHarness(
        *[fatal] * 10,
        END,
        **{
            "flink.shard.subscribetoshard.maxretries": 1,
            "flink.shard.consumer.error.recoverable[0].exception": "java.net.SocketException",
            "flink.shard.consumer.error.recoverable[1].exception": "AccessDeniedException",
        },
    )
    assert harness.read_all() is RunResult.COMPLETE
    assert harness.metrics.retries == 10


def test_f3_in_use_waits_out_five_seconds_and_costs_no_budget():
    harness = FanOutHarness(*[in_use()] * 3, END, draw=0.0, **{"flink.shard.subscribetoshard.maxretries": 0})
    harness.read_all()
    assert harness.ports.gaps == [5, 5, 5]
    assert harness.metrics.retries == 0


def test_f10_a_few_take_overs_are_no_error():
    taken = [(event(n), in_use()) for n in range(4)]
    harness = FanOutHarness(*taken, END)
    assert harness.read_all() is RunResult.COMPLETE
    assert harness.sequences == ["0", "1", "2", "3"]


def test_f10_repeated_take_overs_are_warned_of_and_then_an_error_with_the_consumer(caplog):
    harness = FanOutHarness(*[(event(n), in_use()) for n in range(5)])
    with pytest.raises(ConsumerError, match=f"taken over 5 times in a row.*{ARN}"):
        harness.read_all()
    (warning,) = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert "taken over 3 times in a row" in warning
    assert ARN in warning


def test_f10_another_end_resets_the_count_of_take_overs():
    taken = [(event(n), in_use()) for n in range(4)]
    harness = FanOutHarness(*taken, (event(4),), *taken, END)
    assert harness.read_all() is RunResult.COMPLETE


def test_f10_refusals_for_a_minute_are_an_error_with_the_consumer():
    harness = FanOutHarness(*[in_use()] * 20, draw=0.0)
    with pytest.raises(ConsumerError, match=ARN):
        harness.read_all()
    assert sum(harness.ports.gaps) == 55


def test_f11_an_expired_iterator_is_an_impossible_state():
    harness = FanOutHarness(ExpiredIteratorError("SubscribeToShard", "ExpiredIteratorException", "?"))
    with pytest.raises(ImpossibleStateError, match="only a read by polling"):
        harness.read_all()


def test_f11_two_runs_at_once_are_an_impossible_state():
    harness = FanOutHarness((SILENCE,))

    async def two():
        publisher = await harness.publisher()
        async with asyncio.TaskGroup() as group:
            first = group.create_task(publisher.run(harness.take))
            await asyncio.sleep(1)
            with pytest.raises(ImpossibleStateError, match="was started twice at once"):
                await publisher.run(harness.take)
            first.cancel()

    run_virtual(two())


def test_an_error_of_the_consumer_is_raised_unchanged_and_not_retried():
    own = TransientError("PutRecords", "Sink", "an error of the sink, not of the subscription")

    async def failing(batch):
        raise own

    harness = FanOutHarness((event(1), SILENCE))
    with pytest.raises(TransientError) as caught:
        harness.read_all(consumer=failing)
    assert caught.value is own
    assert (len(harness.ports.calls), harness.ports.opened[0].closed > 0) == (1, True)


@pytest.mark.parametrize("script", ["refused", "in-stream"])
def test_f4_after_a_deleted_consumer_is_registered_again_reading_continues(script):
    harness = FanOutHarness()
    gone = not_found() if script == "refused" else (lambda: harness.ports.consumers.remove("app"), not_found())
    harness.ports.script = [(event(1),), gone, (event(2), shard_end())]

    async def read():
        publisher = await harness.publisher()
        await publisher.run(harness.take)
        if script == "refused":
            harness.ports.consumers.remove("app")
        while await publisher.run(harness.take) is RunResult.INCOMPLETE:
            pass

    run_virtual(read())
    assert harness.sequences == ["1", "2"]
    assert [call.arn[-5:] for call in harness.ports.calls] == ["app:1", "app:1", "app:2"]
    assert harness.ports.positions[2] == after(1)


def test_f4_a_lost_subscription_is_closed_before_the_cause_is_determined():
    harness = FanOutHarness((not_found(),), END)
    closed = []
    harness.ports.consumers.called = lambda call: closed.append((call, [item.closed for item in harness.ports.opened]))
    harness.read_all()
    assert ("list", [1]) in closed


def test_f4_with_registration_none_a_deleted_consumer_is_an_error():
    harness = FanOutHarness(
        not_found(), **{"flink.stream.efo.registration": "NONE", "flink.stream.efo.consumerarn.orders": ARN}
    )
    with pytest.raises(ConsumerError, match=f"not registered.*{ARN}.*NONE"):
        harness.read_all()
    assert harness.ports.consumers.count("register") == 0


def test_f4_a_deleted_stream_is_a_stream_not_found_error():
    harness = FanOutHarness()
    harness.ports.script = [(harness.ports.streams.clear, not_found())]
    with pytest.raises(StreamNotFoundError, match="orders"):
        harness.read_all()


def test_f4_a_shard_past_retention_is_data_loss_and_never_complete():
    harness = FanOutHarness((not_found(),))
    harness.ports.shards = []
    with pytest.raises(DataLossError, match="orders/shardId-000000000000 is gone"):
        harness.read_all()


def test_f4_not_found_for_an_existing_resource_is_retried_within_the_budget():
    harness = FanOutHarness(not_found(), (event(1), shard_end()))
    assert harness.read_all() is RunResult.COMPLETE
    harness = FanOutHarness(*[not_found()] * 3, **{"flink.shard.subscribetoshard.maxretries": 2})
    with pytest.raises(RetriesExhaustedError):
        harness.read_all()


def test_f4_a_consumer_that_vanishes_repeatedly_is_an_error():
    harness = FanOutHarness()
    harness.ports.script = [(lambda: harness.ports.consumers.remove("app"), not_found())] * 10
    with pytest.raises(ConsumerError, match="was deregistered 6 times in a row"):
        harness.read_all()
