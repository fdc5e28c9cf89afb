"""What counts as an outage, how it is waited out, and what is said about it."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from recordpublisher.plugins.spark.outages import UNANSWERED_MS, UNKNOWN_HOST_MS, OutageWatch, is_outage
from recordpublisher.plugins.spark.python_worker import worker_loop
from recordpublisher.plugins.spark.source.patient_planner import BackgroundCall, PlanningCalls
from recordpublisher.publishers import retry
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import (
    ConfigurationError,
    DataLossError,
    FatalKinesisError,
    OutageError,
    ResourceNotFoundError,
    RetriesExhaustedError,
    StateError,
    StoreUnavailableError,
    StreamNotFoundError,
    ThrottledError,
    TransientError,
)
from recordpublisher.publishers.retry import RetryPolicy
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.spark.simulated_kinesis import NOW, ManualClock

REFUSED = TransientError("ListShards", "ConnectionError", "refused")
REFUSED_AT_ONCE = TransientError("ListShards", "EndpointConnectionError", "no")
NO_SUCH_HOST = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
NO_TLS = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")
NO_TLS.reason = "WRONG_VERSION_NUMBER"
CLOSED_PORT = ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)")
CLOSED_PORTS = OSError(f"Multiple exceptions: [Errno {errno.ECONNREFUSED}] ('::1', 1), {CLOSED_PORT}")
DENIED = FatalKinesisError("ListShards", "AccessDeniedException", "no")


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        REFUSED,
        ThrottledError("GetRecords", "LimitExceededException", "slower"),
        StoreUnavailableError("PutObject failed"),
        caused(RetriesExhaustedError("ten times"), REFUSED),
        caused(ConfigurationError("aws.endpoint"), caused(RetriesExhaustedError("ten times"), REFUSED)),
        caused(ConfigurationError("metadataLocation"), StoreUnavailableError("GetItem failed")),
    ],
)
def test_the_network_throttling_and_errors_of_the_service_are_outages(error):
    assert is_outage(error)


@pytest.mark.parametrize(
    "error",
    [
        DENIED,
        FatalKinesisError("GetRecords", "InvalidArgumentException", "no"),
        ResourceNotFoundError("GetRecords", "ResourceNotFoundException", "gone"),
        StreamNotFoundError("s"),
        ConfigurationError("aws.region"),
        StateError("access denied"),
        DataLossError("past retention"),
        caused(ConfigurationError("metadataLocation"), StateError("access denied")),
        caused(RetriesExhaustedError("a plugin's"), ValueError("other")),
    ],
)
def test_access_denied_not_found_and_invalid_arguments_are_none(error):
    assert not is_outage(error)


def test_the_error_names_service_call_and_since_when_after_the_time_is_over():
    clock = ManualClock()
    watch = OutageWatch(60_000, clock)
    watch.on_failure(REFUSED)
    for passed_ms in (20_000, 20_000, 19_999):
        clock.ms += passed_ms
        watch.on_failure(REFUSED)
    clock.ms += 1
    with pytest.raises(OutageError) as caught:
        watch.on_failure(REFUSED)
    assert str(caught.value) == (
        "calls to Kinesis have failed since 2027-01-15T08:00:00.000Z, for longer than maxOutage (60 s): "
        "ListShards failed with ConnectionError: refused"
    )


UNKNOWN_HOST = caused(RetriesExhaustedError("four times"), caused(REFUSED_AT_ONCE, NO_SUCH_HOST))


def test_a_host_that_does_not_exist_and_was_never_reached_is_not_waited_for():
    clock = ManualClock()
    watch = OutageWatch(600_000, clock)
    watch.on_failure(UNKNOWN_HOST)
    clock.ms += UNKNOWN_HOST_MS
    watch.on_failure(REFUSED)
    with pytest.raises(
        OutageError,
        match=r"^Kinesis has not been reached since .*: tried \d+ times; is the region, or the endpoint, .* EndpointConnectionError: no$",
    ):
        watch.on_failure(UNKNOWN_HOST)


@pytest.mark.parametrize(
    ("is_batch_read", "cause", "waits_ms"),
    [
        (False, NO_TLS, 0),
        (True, NO_TLS, 0),
        (True, CLOSED_PORT, UNKNOWN_HOST_MS),
        (True, CLOSED_PORTS, UNKNOWN_HOST_MS),
        (False, CLOSED_PORT, 600_000),
        (True, TimeoutError(), UNANSWERED_MS),
    ],
)
def test_what_answers_without_tls_ends_at_once_and_a_batch_read_waits_shortly_for_a_closed_port(
    is_batch_read, cause, waits_ms
):
    clock = ManualClock()
    watch, error = (
        OutageWatch(600_000, clock, is_batch_read=is_batch_read),
        caused(TransientError("ListShards", "ConnectionError", "no"), cause),
    )
    if waits_ms:
        watch.on_failure(error)
        for passed_ms in (waits_ms // 3, waits_ms // 3, waits_ms - 2 * (waits_ms // 3) - 1):
            clock.ms += passed_ms
            watch.on_failure(error)
        clock.ms += 1
    with pytest.raises(OutageError):
        watch.on_failure(error)


def test_the_wait_for_a_closed_port_counts_from_the_first_call_and_no_pause_is_longer_than_it(caplog):
    clock = ManualClock()
    watch = OutageWatch(600_000, clock, is_batch_read=True)

    def call():
        clock.ms += 4_000
        raise caused(TransientError("ListShards", "ConnectionError", "no"), CLOSED_PORT)

    def sleep(seconds):
        clock.ms += round(seconds * 1000)

    before = clock.ms
    with pytest.raises(OutageError, match=r"has not been reached since 2027-01-15T08:00:00.*tried"):
        watch.wait_out(call, sleep)
    assert UNKNOWN_HOST_MS <= clock.ms - before < UNKNOWN_HOST_MS + 4_100
    assert "repeated for up to 20 s (it was never reached)" in caplog.text


def test_a_service_that_was_reached_before_is_waited_for_whatever_answers_meanwhile():
    watch = OutageWatch(600_000, ManualClock(), is_batch_read=True)
    watch.on_success()
    watch.on_failure(caused(TransientError("ListShards", "ConnectionError", "no"), NO_TLS))


def test_a_host_that_was_reached_before_is_waited_for_also_when_dns_does_not_know_it():
    clock = ManualClock()
    watch = OutageWatch(600_000, clock)
    watch.on_success()
    watch.on_failure(UNKNOWN_HOST)
    clock.ms += UNKNOWN_HOST_MS
    watch.on_failure(UNKNOWN_HOST)


def test_a_success_between_failures_begins_a_new_outage():
    clock = ManualClock()
    watch = OutageWatch(60_000, clock)
    for _ in range(3):
        watch.on_failure(REFUSED)
        clock.ms += 50_000
        watch.on_success()
    assert watch.longest is None


def test_each_key_fails_by_itself_and_the_longest_counts():
    clock = ManualClock()
    watch = OutageWatch(60_000, clock)
    watch.on_failure(REFUSED, "a")
    clock.ms += 30_000
    watch.on_failure(REFUSED, "b")
    assert watch.longest.since_ms == NOW
    watch.on_success("a")
    clock.ms += 30_000
    watch.on_failure(REFUSED, "b")
    assert watch.longest.since_ms == NOW + 30_000


def test_a_service_is_warned_of_once_and_its_return_once(caplog):
    watch = OutageWatch(60_000, ManualClock())
    for key in "abab":
        watch.on_failure(REFUSED, key)
    watch.on_failure(StoreUnavailableError("PutObject at s3://b failed"), "claims")
    for key in ("a", "b", "claims", "claims"):
        watch.on_success(key)
    assert [line.partition(" since")[0] for line in caplog.messages] == [
        "calls to Kinesis have failed",
        "calls to the store of claims have failed",
        "calls to Kinesis succeed again after 0 s",
        "calls to the store of claims succeed again after 0 s",
    ]


def test_without_a_tolerance_the_first_failure_ends_the_job():
    with pytest.raises(OutageError):
        OutageWatch(0, ManualClock()).on_failure(REFUSED)


class Call:
    """Fails with these errors, one after the other, then returns 7."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    def __call__(self) -> int:
        if self.errors:
            raise self.errors.pop(0)
        return 7

    async def later(self) -> int:
        return self()


def test_a_call_is_made_again_until_it_succeeds_with_growing_pauses_up_to_a_cap():
    clock, pauses = ManualClock(), []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock.sleep(seconds)

    assert OutageWatch(10**9, clock).wait_out(Call(*[REFUSED] * 40), sleep) == 7
    assert len(pauses) == 40
    assert all(pause <= min(10, 0.5 * 2**number) for number, pause in enumerate(pauses))


def test_an_error_that_is_no_outage_is_raised_at_once():
    with pytest.raises(FatalKinesisError):
        OutageWatch(60_000, clock := ManualClock()).wait_out(Call(DENIED), clock.sleep)
    assert clock.ms == NOW


def test_waiting_ends_when_the_time_is_over():
    async def wait() -> float:
        clock = VirtualClock()
        began = clock.monotonic()
        with pytest.raises(OutageError, match="calls to Kinesis have failed since"):
            await OutageWatch(60_000, clock).wait_out_async(Call(*[REFUSED] * 10_000).later, "PutRecords")
        return clock.monotonic() - began

    assert 60 <= run_virtual(wait()) < 71


def test_waiting_on_an_event_loop_returns_the_result():
    async def wait() -> int:
        return await OutageWatch(60_000, VirtualClock()).wait_out_async(Call(REFUSED, REFUSED).later, "PutRecords")

    assert run_virtual(wait()) == 7


def test_time_in_which_the_process_was_suspended_does_not_end_the_outage():
    clock = ManualClock()
    suspended = iter([1_200, 0, 1_200, 0])

    def call():
        try:
            clock.sleep(next(suspended))
        except StopIteration:
            return "answer"
        raise REFUSED

    assert OutageWatch(900_000, clock).wait_out(call, clock.sleep) == "answer"


@pytest.fixture
def failing(monkeypatch):
    """A call that fails until its retries are used up, all of which would be logged."""
    monkeypatch.setattr(retry, "UNLOGGED_SECONDS", 0.0)
    policy = RetryPolicy(1, 1, 1, 1.0, decided_by="flink.shard.listshards.maxretries")

    async def call():
        raise REFUSED

    return lambda: worker_loop().run(retry.call_with_retries(call, policy))


def wait_until_over(watch, call):
    def sleep(seconds):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        watch.wait_out(call, sleep)


def plan_once(watch, call):
    assert PlanningCalls(watch, SystemClock(), BackgroundCall()).result("shards", call) is None


@pytest.mark.parametrize("repeat", [wait_until_over, plan_once])
def test_an_outage_has_one_voice_and_one_number_and_names_the_query(failing, caplog, repeat):
    watch = OutageWatch(900_000)
    watch.begin("query 5f0c1e of orders", is_first_start=False)
    repeat(watch, failing)
    assert [(line.name, line.getMessage().partition("since")[0]) for line in caplog.records] == [
        ("recordpublisher.spark", "query 5f0c1e of orders: calls to Kinesis have failed ")
    ]
    assert caplog.text.rstrip().endswith(
        "are repeated for up to 900 s (maxOutage): ListShards failed with ConnectionError: refused"
    )
    assert watch.longest.error == str(REFUSED)
    watch.on_success()
    assert caplog.messages[-1].startswith("query 5f0c1e of orders: calls to Kinesis succeed again after")


def test_an_outage_names_the_error_of_the_last_call_and_its_remedy():
    watch = OutageWatch(900_000, ManualClock())
    error = RetriesExhaustedError("ListShards failed 3 times in a row", "the property 'aws.endpoint' says where it is")
    error.__cause__ = REFUSED
    watch.on_failure(error)
    assert watch.longest.error == f"{REFUSED}; the property 'aws.endpoint' says where it is"
