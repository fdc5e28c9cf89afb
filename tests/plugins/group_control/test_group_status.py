"""What the documents of a group mean to somebody who looks at it."""

from recordpublisher.fetcher.leases.document_format import by_stream
from recordpublisher.fetcher.leases.lease_table import GroupJob, Lease, LeaseTable
from recordpublisher.fetcher.leases.planning import GroupView
from recordpublisher.fetcher.leases.worker_record import WorkerRecord
from recordpublisher.plugins.group_control import LeaseState, ShardStatus, WorkerState, WorkerStatus, status_of


def status(leases, *records, drained=()):
    table = LeaseTable(7, leases=leases, drained=frozenset(drained))
    return status_of(GroupView(table, {record.worker: record for record in records}))


def test_a_worker_has_its_shards_and_its_share_of_the_loads():
    found = status(
        {"s/1": Lease("a", 3), "s/2": Lease("a", 4), "s/3": Lease("b", 5)},
        WorkerRecord("a", beat=9),
        WorkerRecord("b", beat=2, loads=by_stream({"s/3": 10})),
    )

    assert found.version == 7
    assert found.workers == (
        WorkerStatus("a", WorkerState.ACTIVE, 2, 2000 / 11313, 9),
        WorkerStatus("b", WorkerState.ACTIVE, 1, 9313 / 11313, 2),
    )
    assert found.shards[2] == ShardStatus("s/3", LeaseState.OWNED, "b", 5, 9313, None)


def test_a_worker_is_active_asked_to_leave_leaving_left_or_sealed():
    records = (
        WorkerRecord("a", 1),
        WorkerRecord("b", 1),
        WorkerRecord("c", 1, is_leaving=True),
        WorkerRecord("d", 1, is_sealed=True, is_leaving=True),
        WorkerRecord("e", 1, is_sealed=True),
    )

    assert [each.state for each in status({}, *records, drained=["b", "d"]).workers] == [
        WorkerState.ACTIVE,
        WorkerState.ASKED_TO_LEAVE,
        WorkerState.LEAVING,
        WorkerState.LEFT,
        WorkerState.SEALED,
    ]


def test_a_worker_that_has_left_has_no_shards_though_nobody_has_taken_them():
    found = status({"s/1": Lease("a", 3)}, WorkerRecord("a", beat=9, is_sealed=True, is_leaving=True))

    assert found.workers == (WorkerStatus("a", WorkerState.LEFT, 0, 0.0, 9),)
    assert [(shard.stage, shard.worker) for shard in found.shards] == [(LeaseState.FREE, "a")]


def test_a_shard_that_moves_is_shown_with_its_stage_and_its_next_worker():
    leases = {
        "s/0": Lease("a", 3),
        "s/1": Lease("gone", 2),
        "s/2": Lease("a", 4),
        "s/3": Lease(parents=("s/0",)),
        "s/4": Lease(None, 2, ended=True),
    }
    records = (
        WorkerRecord("a", 1, released=by_stream({"s/2": 4})),
        WorkerRecord("b", 1),
        WorkerRecord("gone", 1, is_sealed=True),
    )

    assert [(each.stage, each.worker, each.next_worker) for each in status(leases, *records).shards] == [
        (LeaseState.OWNED, "a", None),
        (LeaseState.FREE, "gone", "b"),
        (LeaseState.RELEASED, "a", None),
        (LeaseState.WAITS_FOR_PARENTS, None, None),
        (LeaseState.ENDED, None, None),
    ]


def test_nothing_is_planned_for_a_worker_that_was_asked_to_leave():
    found = status({"s/1": Lease(), "s/2": Lease()}, WorkerRecord("a", 1), WorkerRecord("b", 1), drained=["a"])
    assert {each.next_worker for each in found.shards} == {"b"}


def test_a_shard_of_a_stream_that_the_job_does_not_read_is_not_read_by_its_owner():
    leases = {"s/1": Lease("a", 3), "other/1": Lease("a", 3), "other/2": Lease("b", 3)}
    table = LeaseTable(7, leases=leases, job=GroupJob("MapSink", ("s",)))
    found = status_of(GroupView(table, {name: WorkerRecord(name, 1) for name in "ab"}))

    assert [each.stage for each in found.shards] == [LeaseState.NOT_READ, LeaseState.NOT_READ, LeaseState.OWNED]
    assert [(each.shards, each.share) for each in found.workers] == [(1, 1.0), (0, 0.0)]
