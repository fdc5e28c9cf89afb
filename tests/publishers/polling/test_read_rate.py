import pytest

from recordpublisher.publishers.errors import ThrottledError, TransientError
from recordpublisher.publishers.polling.read_rate import (
    RecordSize,
    next_read_at,
    records_to_request,
    retry_pause_seconds,
)

MEASURED = RecordSize(read=1024.0, held=1400.0, is_measured=True)


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


def test_without_budget_and_adaptive_reads_the_limit_is_the_property():
    assert records_to_request(500, MEASURED, None, None) == 500


def test_p6_a_first_read_without_a_budget_is_small():
    assert records_to_request(10_000, RecordSize(), None, None) == 102
    assert records_to_request(10_000, RecordSize(), 10**9, None) == 10_000


@pytest.mark.parametrize(("budget", "limit"), [(14_000, 10), (1_399, 1), (0, 1), (10**9, 500)])
def test_p6_the_budget_lowers_the_limit(budget, limit):
    assert records_to_request(500, MEASURED, budget, None) == limit


@pytest.mark.parametrize(("seconds", "limit"), [(1.0, 2048), (0.5, 1024), (0.0, 409), (60.0, 10_000)])
def test_r1_adaptive_reads_fill_two_mebibytes_a_second(seconds, limit):
    assert records_to_request(500, MEASURED, None, seconds) == limit


def test_adaptive_reads_stay_within_the_budget():
    assert records_to_request(500, MEASURED, 14_000, 1.0) == 10


def test_record_sizes_are_means_of_the_latest_batch_with_records():
    size = RecordSize().after(raw_count=2, read_bytes=412, held_bytes=400 + 4 * 360)
    assert (size.read, size.held) == (206.0, (400 + 4 * 360) / 2)
    assert size.after(raw_count=0, read_bytes=0, held_bytes=360) is size
