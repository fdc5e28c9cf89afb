import pytest

from recordpublisher.publishers.polling.publisher import RecordSize, records_to_request

MEASURED = RecordSize(read=1024.0, held=1400.0, is_measured=True)


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
