"""S7: a poisoned record fails the job and is named, or is skipped and counted; position and order are unchanged."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.consumer.deserialization import CallableDeserializer
from recordpublisher.consumer.shard_consumer import PoisonPolicy
from recordpublisher.publishers.errors import (
    ConfigurationError,
    DeserializationError,
    OutageError,
    RetriesExhaustedError,
    StoreUnavailableError,
    TransientError,
)
from recordpublisher.publishers.properties.job_properties import OnBadRecord

from fakes.batches import batch


def numbers(given):
    return replace(given, decoded=[int(data) for data in given.data], event_times=[int(data) for data in given.data])


def test_a_batch_without_poisoned_records_is_decorated_once():
    calls = []
    PoisonPolicy(OnBadRecord.SKIP).apply(batch(b"1", b"2"), lambda part: calls.append(len(part)) or numbers(part))

    assert calls == [2]


def test_the_error_names_shard_record_and_reason():
    with pytest.raises(DeserializationError, match="invalid literal") as raised:
        PoisonPolicy(OnBadRecord.FAIL).apply(batch(b"1", b"x", b"y"), numbers)

    assert (raised.value.stream, raised.value.shard_id, raised.value.sequence_number) == ("orders", "shardId-0", "2")
    assert isinstance(raised.value.__cause__, ValueError)


@given(st.lists(st.sampled_from([b"1", b"22", b"poison"]), max_size=8))
def test_skipping_drops_exactly_the_poisoned_and_keeps_the_position(payloads):
    whole = batch(*payloads)
    done = PoisonPolicy(OnBadRecord.SKIP).apply(whole, numbers)

    assert list(done.data) == [data for data in payloads if data != b"poison"]
    assert list(done.values) == [int(data) for data in done.data]
    assert list(done.event_time_column) == [int(data) for data in done.data]
    assert done.skipped_count == payloads.count(b"poison")
    for each in done.skipped:
        first = payloads[int(each.sequence_number) - 1 :][: each.count]
        assert first == [b"poison"] * each.count
        assert each.index == int(each.sequence_number) - 1 - payloads[: int(each.sequence_number) - 1].count(b"poison")
    assert done.read_position == whole.read_position


def test_bytes_stay_bytes_when_only_times_fail():
    def times(part):
        return replace(part, event_times=[int(data) for data in part.data])

    done = PoisonPolicy(OnBadRecord.SKIP).apply(batch(b"1", b"x"), times)

    assert done.decoded is None
    assert done.values == [b"1"]


def test_the_first_skipped_record_is_logged_with_its_name_and_its_traceback(caplog):
    PoisonPolicy(OnBadRecord.SKIP).apply(batch(b"1", b"x", b"y"), numbers)

    lines = [line for line in caplog.records if line.levelname == "WARNING"]
    assert [line.getMessage() for line in lines] == [
        "skipped record 2 of orders/shardId-0: ValueError: invalid literal for int() with base 10: b'x'"
    ]
    assert lines[0].exc_info[0] is ValueError
    assert lines[0].fields == {"stream": "orders", "shard": "shardId-0", "sequenceNumber": "2"}


def test_the_first_dead_letter_is_logged_as_a_skipped_record_is(caplog):
    PoisonPolicy(OnBadRecord.DEAD_LETTER).apply(batch(b"1", b"x", b"y"), numbers)

    lines = [line for line in caplog.records if line.levelname == "WARNING"]
    assert [line.getMessage() for line in lines] == [
        "dead letter for record 2 of orders/shardId-0: ValueError: invalid literal for int() with base 10: b'x'"
    ]
    assert lines[0].exc_info[0] is ValueError


def test_an_error_that_ends_the_job_is_logged_with_its_traceback_and_says_how_to_continue(caplog):
    with pytest.raises(
        DeserializationError,
        match=r"tail orders --shard shardId-0 --from 2 -n 1. .and --properties FILE .* flink.deserializer.error .* deserializer_error=",
    ):
        PoisonPolicy(OnBadRecord.FAIL).apply(batch(b"1", b"x"), numbers)

    line = next(line for line in caplog.records if line.levelname == "ERROR")
    assert (line.exc_info[0], line.fields["shard"]) == (ValueError, "shardId-0")


class UnprintableError(Exception):
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize("raised", [UnprintableError(), StopIteration(1)])
def test_whatever_user_code_raises_only_its_record_is_skipped(raised):
    def fail(record):
        if record.data == b"x":
            raise raised
        return record.data

    deserializer = CallableDeserializer(fail)
    done = PoisonPolicy(OnBadRecord.SKIP).apply(
        batch(b"1", b"x", b"y"), lambda part: part.with_columns(values=deserializer.values(part))
    )
    assert (done.data, done.skipped_count) == ([b"1", b"y"], 1)


def test_a_deserializer_that_nobody_would_await_is_refused():
    async def later(record):
        return 1

    with pytest.raises(ConfigurationError, match="its result would not be awaited"):
        CallableDeserializer(later)
    with pytest.raises(TypeError, match="returned a coroutine"):
        CallableDeserializer(lambda record: later(record)).values(batch(b"1"))  # noqa: PLW0108 - a plain function


@pytest.mark.parametrize("action", OnBadRecord)
@pytest.mark.parametrize(
    "cause",
    [
        MemoryError(),
        TransientError("GET /schemas", "503", "away"),
        RetriesExhaustedError("GET /schemas failed 5 times"),
        OutageError("the registry has not been reached"),
        StoreUnavailableError("the store of the schemas does not answer"),
    ],
)
def test_a_record_for_which_memory_or_a_service_was_missing_is_not_dropped(action, cause):
    def decorate(part):
        raise ValueError("wrapped") from cause

    with pytest.raises(DeserializationError, match="wrapped"):
        PoisonPolicy(action).apply(batch(b"1", b"2"), decorate)


def test_an_error_that_the_caller_handles_excuses_no_bad_record():
    """Python names it as the context of each error that is raised meanwhile, as in a publisher that reads elsewhere after an outage."""

    def read():
        raise TransientError("GET /records", "503", "away")

    def decorate(part):
        raise ValueError("bad")

    try:
        read()
    except TransientError:
        left = PoisonPolicy(OnBadRecord.SKIP).apply(batch(b"1", b"2"), decorate)
    assert [skipped.count for skipped in left.skipped] == [2]
