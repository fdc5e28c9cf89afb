"""The shard states that a job has stored."""

from recordpublisher.fetcher.checkpoints.snapshot_format import snapshot_to_json
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.lag.job_state import JobState
from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition

from fakes.shard_entries import START, shard


def snapshot(worker, pinned=None, **states):
    given = {f"s/{name}": state for name, state in states.items()}
    return {**snapshot_to_json(given, pinned, 1), "worker": worker}


def at(sequence, watermark=None, ended=False):
    return ShardState(START, SequenceNumber(sequence), watermark=watermark, ended=ended)


def job(*snapshots, shards=("a", "b"), start=START):
    return JobState.of(snapshots, [shard(name) for name in shards], start)


def test_a_shard_has_the_worker_that_has_stored_it():
    stored = job(snapshot("v", b=at("5")), snapshot("w", a=at("7")), snapshot(None, c=at("1")))

    assert stored.workers == {"s/a": "w", "s/b": "v"}
    assert str(stored.states["s/b"].position) == "5"


def test_a_shard_has_the_time_of_the_checkpoint_that_its_state_is_from():
    old, new = snapshot("v", a=at("7")), snapshot("w", b=at("5"))

    assert job({**old, "takenMs": 50}, {**new, "takenMs": 90}).taken_ms == {"s/a": 50, "s/b": 90}
    assert job(old).taken_ms == {}


def test_a_shard_without_stored_state_starts_where_the_job_would_start_it():  # S3
    stored = job(snapshot("w", a=at("7")))

    assert stored.states["s/b"] == ShardState(StartingPosition.trim_horizon())
    assert "s/b" not in stored.workers


def test_a_job_started_at_latest_is_compared_with_its_pinned_start():  # P3
    stored = job(snapshot("w", pinned=99), start=StartingPosition.latest())

    assert stored.states["s/a"].start == StartingPosition.at_timestamp(99)


def test_an_age_was_subtracted_when_the_job_started():  # P3
    an_hour = StartingPosition(PositionType.LATEST, ago_ms=3_600_000)
    stored = job(snapshot(0, pinned=5_000_000), start=an_hour)

    assert stored.states["s/a"].start == StartingPosition.at_timestamp(5_000_000)


def test_the_lowest_shard_is_one_that_has_not_ended():
    assert job(snapshot("w", a=at("7", 50), b=at("9", 40))).lowest_shard() == "s/b"
    assert job(snapshot("w", a=at("7", 50), b=at("9", 40, ended=True))).lowest_shard() == "s/a"
    assert job(snapshot("w")).lowest_shard() is None


def test_a_shard_that_is_no_longer_listed_is_lost_unless_it_was_read_to_its_end():
    assert list(job(snapshot("w", a=at("7"), b=at("1")), shards=("a",)).lost) == ["s/b"]
    assert not job(snapshot("w", a=at("7"), b=at("1", ended=True)), shards=("a",)).lost


def test_a_shard_that_is_younger_than_every_listed_one_is_not_lost():
    """Retention drops the oldest first: the listing is older than the state, or the stream was deleted and created again."""
    first, second = "shardId-000000000000", "shardId-000000000002"

    assert not job(snapshot("w", **{second: at("7")}), shards=(first,)).lost
    assert list(job(snapshot("w", **{first: at("7")}), shards=(second,)).lost) == [f"s/{first}"]
