import pytest

from recordpublisher.publishers.errors import ThrottledError, TransientError
from recordpublisher.publishers.polling.read_rate import next_read_at, retry_pause_seconds


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


def test_r4_a_throttled_call_waits_a_second():
    assert retry_pause_seconds(ThrottledError("GetRecords", "c", "m")) == 1.0
    assert retry_pause_seconds(TransientError("GetRecords", "c", "m")) == 0.2
