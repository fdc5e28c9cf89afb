"""E6: which free shards a worker may take."""

from recordpublisher.fetcher.leases.lease_settings import LeaseSettings
from recordpublisher.fetcher.leases.lease_table import LeaseTable
from recordpublisher.fetcher.leases.planning import GroupView
from recordpublisher.fetcher.leases.worker_record import WorkerRecord


def test_a_free_shard_is_taken_by_its_planned_worker_at_once_and_by_anybody_when_patience_is_over():
    plan, free_seconds = {"mine": "a", "theirs": "b", "left": "b"}, {"mine": 0.0, "theirs": 40.0, "left": 40.1}
    assert GroupView(LeaseTable(), {}).shards_to_take("a", plan, free_seconds, LeaseSettings(duration=20.0)) == {
        "mine",
        "left",
    }


def test_the_highest_watermark_is_that_of_the_workers_that_nobody_has_sealed():  # W12
    records = {
        name: WorkerRecord(name, 1, is_sealed=is_sealed, max_watermark=value)
        for name, is_sealed, value in (("a", False, 5), ("b", False, None), ("c", True, 9))
    }
    assert GroupView(LeaseTable(), records).max_watermark == 5
    assert GroupView(LeaseTable(), {}).max_watermark is None
