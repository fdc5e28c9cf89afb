"""ResubscribePolicy: when the next call is made after a failure (F3, F5, F10). test_publisher_errors.py tests the whole publisher."""

import asyncio

import pytest

from recordpublisher.publishers.errors import ConsumerError, FatalKinesisError, RetriesExhaustedError
from recordpublisher.publishers.fanout.config import FanOutConfig
from recordpublisher.publishers.fanout.publisher import (
    MAX_PREEMPTIONS,
    MAX_REFUSALS,
    ResubscribePolicy,
    SubscriptionPreemptionDetector,
)
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.fanout_service import ARN, EFO, SHARD, in_use, network, throttled


def recovered(act, draw=1.0, **properties):
    """Call `act` with a new ResubscribePolicy at time 0. Returns the seconds to wait and the metrics."""
    config = FanOutConfig.of(Properties({**EFO, **properties}))
    metrics = ShardMetrics()

    async def main():
        policy = ResubscribePolicy(SHARD, config, metrics, VirtualClock(), lambda: draw)
        act(policy)
        return policy.seconds_to_wait, metrics

    return run_virtual(main())


def test_a_transient_failure_backs_off_with_full_jitter():
    assert recovered(lambda r: r.on_subscribe_error(network(), ARN))[0] == 1
    assert recovered(lambda r: r.on_subscribe_error(network(), ARN), draw=0.25)[0] == 0.25


def test_backoff_is_capped():
    def fail_four_times(policy):
        for _ in range(4):
            policy.on_subscribe_error(network(), ARN)

    assert recovered(fail_four_times, **{"flink.shard.subscribetoshard.backoff.max": 2_000})[0] == 2


def test_throttles_are_also_counted_as_retries():
    metrics = recovered(lambda r: r.on_read_error(throttled(), ARN, was_backpressured=False))[1]
    assert (metrics.retries, metrics.throttles) == (1, 1)


def test_a_take_over_waits_out_five_seconds_and_some_jitter():
    seconds, metrics = recovered(lambda r: r.on_read_error(in_use(), ARN, was_backpressured=False), draw=0.5)
    assert (seconds, metrics.retries) == (5.5, 0)


def test_an_in_use_error_declared_recoverable_is_backed_off():
    key = "flink.shard.consumer.error.recoverable[0].exception"

    def refuse_often(policy):
        for _ in range(50):
            policy.on_subscribe_error(in_use(), ARN)

    assert recovered(refuse_often, **{key: "ResourceInUseException"})[0] == 1


def test_progress_resets_the_budget():
    def act(policy):
        for _ in range(5):
            policy.on_subscribe_error(network(), ARN)
        policy.on_event()
        for _ in range(5):
            policy.on_subscribe_error(network(), ARN)
        with pytest.raises(RetriesExhaustedError):
            policy.on_subscribe_error(network(), ARN)

    recovered(act, **{"flink.shard.subscribetoshard.maxretries": 5})


def test_a_retriable_error_after_back_pressure_is_not_counted():
    def act(policy):
        policy.on_read_error(network(), ARN, was_backpressured=True)
        with pytest.raises(FatalKinesisError):
            policy.on_read_error(FatalKinesisError("a", "AccessDeniedException", ""), ARN, was_backpressured=True)

    recovered(act, **{"flink.shard.subscribetoshard.maxretries": 0})


def test_repeated_registrations_are_limited():
    def act(policy):
        for _ in range(5):
            policy.on_reregistered(ARN)
        policy.on_event()
        for _ in range(5):
            policy.on_reregistered(ARN)
        with pytest.raises(ConsumerError, match="was deregistered 6 times"):
            policy.on_reregistered(ARN)

    recovered(act)


def test_an_unknown_error_is_raised_unchanged():
    def act(policy):
        with pytest.raises(ZeroDivisionError):
            policy.on_read_error(ZeroDivisionError(), ARN, was_backpressured=False)

    recovered(act)


def test_the_fifth_take_over_in_a_row_is_an_error_that_names_the_consumer():
    detector = SubscriptionPreemptionDetector(SHARD)
    for _ in range(4):
        detector.on_preempted(ARN)
    with pytest.raises(ConsumerError, match=rf"{SHARD.key} was taken over 5 times.*{ARN}.*consumername"):
        detector.on_preempted(ARN)


def test_another_end_resets_the_count_and_a_new_subscription_does_not():
    detector = SubscriptionPreemptionDetector(SHARD)
    for _ in range(4):
        detector.on_preempted(ARN)
        detector.on_subscribed()
    detector.on_other_end()
    detector.on_preempted(ARN)


def test_the_twelfth_refusal_in_a_row_is_an_error_that_names_the_consumer():
    detector = SubscriptionPreemptionDetector(SHARD)
    for _ in range(11):
        detector.on_in_use(ARN)
    with pytest.raises(ConsumerError, match=ARN):
        detector.on_in_use(ARN)


def test_a_subscription_resets_the_count_of_refusals():
    detector = SubscriptionPreemptionDetector(SHARD)
    for _ in range(11):
        detector.on_in_use(ARN)
    detector.on_subscribed()
    detector.on_in_use(ARN)


@pytest.mark.parametrize(("call", "most"), [("on_preempted", MAX_PREEMPTIONS), ("on_in_use", MAX_REFUSALS)])
def test_f10_what_will_end_the_job_is_a_warning_once_before(call, most, caplog):
    detector = SubscriptionPreemptionDetector(SHARD)
    for _ in range(most - 1):
        getattr(detector, call)(ARN)

    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert f"{most // 2 + 1} times in a row" in warning
    assert f". The job ends if this happens {most} times in a row" in warning


def test_time_in_which_the_process_was_suspended_uses_no_retries():
    async def main():
        config = FanOutConfig.of(Properties(EFO))
        policy = ResubscribePolicy(SHARD, config, ShardMetrics(), VirtualClock(), lambda: 1.0)
        policy.on_subscribe_error(network(), ARN)
        waiting = asyncio.create_task(policy.wait())
        await asyncio.sleep(0)
        asyncio.get_running_loop().suspend(3_600)
        await waiting
        policy.on_subscribe_error(network(), ARN)
        return policy.seconds_to_wait

    assert run_virtual(main()) > 0


# When SubscribeToShard may be called again (F2, F9).


def waits(*steps, draw=1.0):
    """Seconds to wait after each step; a number lets time pass."""

    async def main():
        config = FanOutConfig.of(Properties(EFO))
        policy, seen = ResubscribePolicy(SHARD, config, ShardMetrics(), VirtualClock(), lambda: draw), []
        for step in steps:
            if isinstance(step, int | float):
                await asyncio.sleep(step)
            else:
                step(policy)
            seen.append(policy.seconds_to_wait)
        return seen

    return run_virtual(main())


def test_the_first_call_is_made_at_once():
    assert waits(0) == [0]


def test_calls_are_a_second_apart():
    assert waits(ResubscribePolicy.on_call, 0.5, 1) == [1, 0.5, 0]


def test_the_next_call_comes_five_seconds_after_a_success():
    assert waits(ResubscribePolicy.on_call, 0.5, ResubscribePolicy.on_subscribed, 2) == [1, 0.5, 5, 3]


def test_a_shorter_wait_does_not_replace_a_longer_one():
    def nine_seconds(policy):
        policy.on_subscribe_error(in_use(), ARN)  # five seconds, and the jitter

    assert waits(nine_seconds, ResubscribePolicy.on_subscribed, ResubscribePolicy.on_call, draw=4.0) == [9, 9, 9]
