"""What is not the next record of a shard is refused for an archive: its files would say that they have the records in between."""

import pytest

import recordpublisher as rp
from recordpublisher.plugins.dead_letters.replay import JobTarget

from ..sinks.tables.lake_tables import place_of

KINDS = ["jsonl", "parquet", "delta"]
QUEUE = {"flink.stream.recordpublisher": "QUEUE", "flink.queue.name": "work", "aws.region": "eu-west-1"}


def archive(folder, kind, **more):
    return {
        "flink.job.name": "shop",
        "flink.sink": kind,
        "flink.sink.archive": True,
        **place_of(folder, kind),
        "aws.region": "eu-west-1",
        **more,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_dead_letters_are_not_replayed_into_an_archive(tmp_path, kind):
    """A reader of the archive would not see the records between two letters."""
    given = archive(tmp_path, kind, **{"flink.streams": "orders"})

    with pytest.raises(rp.ConfigurationError, match=r"'flink\.sink\.archive'.*--to stream"):
        JobTarget(rp.Properties(given))


@pytest.mark.parametrize("kind", KINDS)
def test_a_queue_is_not_read_into_an_archive(tmp_path, kind):
    with pytest.raises(rp.ConfigurationError, match=r"'flink\.sink\.archive'.*no order"):
        rp.DataFetcher("orders", archive(tmp_path, kind, **QUEUE))
