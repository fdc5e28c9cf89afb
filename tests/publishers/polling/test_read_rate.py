import pytest

from recordpublisher.publishers.errors import ThrottledError, TransientError
from recordpublisher.publishers.kinesis.ports import ReadResponse
from recordpublisher.publishers.polling.publisher import (
    PollingConfig,
    interval_after,
    next_read_at,
    retry_pause_seconds,
)
from recordpublisher.publishers.properties.properties import Properties


@pytest.mark.parametrize(
    ("interval", "size", "at"),
    [
        (0.2, 0, 10.2),
        (1.0, 0, 11.0),
        (0.0, 0, 10.2),
        (0.2, 2**20, 10.1 + 0.5),
        (0.2, 10 * 2**20, 10.1 + 5.0),
        (7.0, 10 * 2**20, 17.0),
    ],
)
def test_r1_calls_count_from_start_to_start_and_bytes_from_the_response(interval, size, at):
    assert next_read_at(10.0, 10.1, interval, size) == pytest.approx(at)


@pytest.mark.parametrize(
    ("records", "behind", "seconds"), [((), 0, 2.0), (("r",), 0, 0.5), ((), 7, 0.5), ((), None, 0.5)]
)
def test_the_interval_of_the_tip_follows_a_response_without_records_at_the_tip(records, behind, seconds):
    keys = {"intervalmillis": "500", "tip.intervalmillis": "2000"}
    config = PollingConfig.of(Properties({f"flink.shard.getrecords.{key}": value for key, value in keys.items()}))

    assert interval_after(ReadResponse(records, behind), config) == seconds


def test_r4_a_throttled_call_waits_a_second():
    assert retry_pause_seconds(ThrottledError("GetRecords", "c", "m")) == 1.0
    assert retry_pause_seconds(TransientError("GetRecords", "c", "m")) == 0.2
