"""The tasks of a batch read: shards, ends that have passed, starts past retention."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import pytest

from recordpublisher.consumer.end_position import EndPosition
from recordpublisher.fetcher.checkpoints.shard_starts import Starts
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.spark.batch_read import ShardRange, later_ranges, shard_ranges, shared_among
from recordpublisher.plugins.spark.options.start_by_shard import STARTS
from recordpublisher.plugins.spark.read_range import ReadRange
from recordpublisher.publishers.errors import ConfigurationError, DataLossError
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard

END = EndPosition(1_800_000_000_000)
OLDEST = StartingPosition.trim_horizon()


@dataclass
class Service:
    """A service whose clock stands. `tells_ms` is how exact the time is that it tells."""

    now_ms: int = END.arrival_ms + 5_000
    tells_ms: int = 1
    oldest_ms: int | None = None
    shards: list[str] = field(default_factory=lambda: ["a", "b"])

    def list_shards(self, stream: str) -> list[Shard]:
        return [Shard(stream, shard) for shard in self.shards]

    def list_restored(self, streams, restored):
        return [shard for stream in streams for shard in self.list_shards(stream)], frozenset()

    def server_time_ms(self, stream: str) -> int:
        return self.now_ms // self.tells_ms * self.tells_ms

    def oldest_retained_ms(self, stream: str) -> int | None:
        return self.oldest_ms


RANGE = ReadRange(Starts(OLDEST), END)


def planned(service, positions=RANGE, streams=("s",), accepts_loss=False):
    return shard_ranges(streams, positions, service, accepts_loss)[0]


def test_each_shard_of_each_stream_is_a_part():
    parts = planned(Service(), streams=("s", "t"))
    assert [part.shard.key for part in parts] == ["s/a", "s/b", "t/a", "t/b"]
    assert parts[0] == ShardRange(Shard("s", "a"), OLDEST, END)


@pytest.mark.parametrize(("tasks", "sizes"), [(1, [5]), (2, [3, 2]), (5, [1] * 5), (9, [1] * 5)])
def test_tasks_share_the_parts_evenly_and_none_is_empty(tasks, sizes):
    parts = planned(Service(shards=["a", "b", "c", "d", "e"]))
    shared = shared_among(tasks, parts)
    assert [len(each) for each in shared] == sizes
    assert sorted(part.shard.key for each in shared for part in each) == [part.shard.key for part in parts]


def test_only_the_named_shards_are_read_whatever_a_split_adds():
    positions = ReadRange(Starts(OLDEST, {"b": ShardState(OLDEST)}), END)
    service = Service()
    before = planned(service, positions)
    service.shards.append("c")
    assert [part.shard.shard_id for part in before] == ["b"]
    assert planned(service, positions) == before


@pytest.mark.parametrize("kind", ["AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"])
def test_the_number_that_kinesis_lists_for_the_beginning_of_a_shard_is_trim_horizon(kind):
    entry = {"iteratorType": kind, "iteratorPosition": "7"}
    properties = Properties({STARTS.key: json.dumps({"a": entry})})
    positions = ReadRange.parse(properties, ["s"], END.arrival_ms)
    shard = Shard("s", "a", starting_sequence_number="7")
    assert positions.of(shard)[0] == OLDEST
    later = replace(shard, starting_sequence_number="6")
    if kind == "AT_SEQUENCE_NUMBER":
        assert positions.of(later)[0] == StartingPosition(PositionType.AT_SEQUENCE_NUMBER, "7")
    else:
        with pytest.raises(
            ConfigurationError, match=r"'7'.*a start after a record or at the tip is valid only for a query"
        ):
            positions.of(later)


@pytest.mark.parametrize("fraction_ms", range(0, 1_000, 100))
@pytest.mark.parametrize("late_ms", [-2_000, 0, 400, 900, 1_700])
def test_the_end_settles_a_second_after_it_and_at_most_a_second_later_by_a_service_that_tells_whole_seconds(
    fraction_ms, late_ms
):
    end = EndPosition(END.arrival_ms + fraction_ms)
    service = Service(now_ms=end.arrival_ms + late_ms, tells_ms=1_000)
    _, settles_in = shard_ranges(("s",), ReadRange(Starts(OLDEST), end), service, accepts_loss=False)
    assert end.arrival_ms + 1_000 <= service.now_ms + 1_000 * settles_in <= end.arrival_ms + 2_000


def test_an_end_that_has_settled_needs_no_wait():
    assert shard_ranges(("s",), RANGE, Service(), accepts_loss=False)[1] == 0


def test_shards_that_were_created_after_the_plan_are_read_from_their_beginning_to_the_same_end():
    service = Service()
    known = frozenset(part.shard.key for part in planned(service, streams=("s", "t")))
    service.shards.append("c")
    found = later_ranges(("s", "t"), RANGE, known, service.list_shards)
    assert found == [ShardRange(Shard(stream, "c"), OLDEST, END) for stream in ("s", "t")]


def test_c2_an_end_in_the_future_is_refused():
    with pytest.raises(ConfigurationError, match=r"endingPosition.*it lies in the future: the service's clock"):
        planned(Service(now_ms=END.arrival_ms - 60_000))


def test_c2_a_shard_that_does_not_exist_is_named():
    with pytest.raises(ConfigurationError, match=r"startingPosition.*'x'.*Valid: a, b"):
        planned(Service(), ReadRange(Starts(OLDEST, {"x": ShardState(OLDEST)}), END))


def test_s5_a_start_past_retention_follows_fail_on_data_loss(caplog):
    positions = ReadRange(Starts(StartingPosition.at_timestamp(1_000)), END)
    service = Service(oldest_ms=2_000)
    with pytest.raises(
        DataLossError, match=r"starts at .* past its retention\. Start later, or set flink.state.dataloss"
    ):
        planned(service, positions)
    assert len(planned(service, positions, accepts_loss=True)) == 2
    assert "the read continues because flink.state.dataloss=CONTINUE" in caplog.text
