"""The documents of a group are read as they were written, and are as small as E2 asks."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.fetcher.leases.document_format import by_stream, long_id, short_id
from recordpublisher.fetcher.leases.lease_table import GroupJob, Lease, LeaseTable, table_from_bytes, table_to_bytes
from recordpublisher.fetcher.leases.position_documents import PositionKey, PositionPart, StoredPosition
from recordpublisher.fetcher.leases.worker_record import WorkerRecord
from recordpublisher.fetcher.shards.shard_state import ShardState, stored_start
from recordpublisher.fetcher.sink import CommitNumber, Staged
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition

KEYS = [f"{stream}/{shard}" for stream in ("orders", "a.b") for shard in ("shardId-000000000012", "12", "=7", "other")]
keys = st.sampled_from(KEYS)
times = st.none() | st.integers(-(10**15), 10**15)
owned = st.builds(Lease, owner=st.sampled_from(["x", "y"]), epoch=st.integers(1, 99), seen_ms=times)


def kin_of(key):
    """Parents of a shard: other shards of its stream."""
    names = [f"{key.rpartition('/')[0]}/{shard}" for shard in ("shardId-000000000012", "other")]
    return st.lists(st.sampled_from([name for name in names if name != key]), unique=True).map(tuple)


KIN = {key: kin_of(key) for key in KEYS}
streams = st.none() | st.lists(st.sampled_from("abc"), unique=True).map(tuple)
jobs = st.none() | st.builds(
    GroupJob,
    streams=streams,
    sink=st.text(max_size=5),
    keeps_positions=st.booleans(),
    name=st.none() | st.text(max_size=5),
)
starts = st.sampled_from([StartingPosition.trim_horizon(), StartingPosition.at_timestamp(1_700_000_000_000)])


@st.composite
def tables(draw):
    leases = draw(st.dictionaries(keys, owned))
    for key in KEYS:
        if key not in leases and draw(st.booleans()):
            if draw(st.booleans()):
                leases[key] = Lease(
                    None, draw(st.integers(0, 9)), True, draw(times), draw(KIN[key]), seen_ms=draw(times)
                )
            else:
                start = draw(st.none() | starts.map(stored_start))
                leases[key] = Lease(
                    parents=draw(KIN[key]), is_first=draw(st.booleans()), seen_ms=draw(times), start=start
                )
    drained = draw(st.frozensets(st.sampled_from("xyz")))
    version, writer = draw(st.integers(1, 10**9)), draw(st.sampled_from(["", "x"]))
    return LeaseTable(version, writer, draw(starts), leases, drained, draw(jobs), draw(st.booleans()))


@given(tables())
def test_a_lease_table_is_read_as_it_was_written(table):
    assert table_from_bytes(table_to_bytes(table), "place") == table


TABLE = (
    b'{"format":1,"version":9,"writer":"w1","start":{"type":"AT_TIMESTAMP","timestamp":1700000000000},"workers":["w1","w2"],'
    b'"leases":{"orders":{"0":{"epoch":3,"ended":true,"watermark":17,"children":["1","2"],"seen":19},"1":[1,7],"2":[0,5],'
    b'"3":{"parents":["1"]},"4":{"first":true}},"other":{"odd":{"parents":["=12"],"seen":23}}},"drained":["w2"],'
    b'"job":{"sink":"a folder","streams":["orders","other"],"name":"totals"},"latest":true}'
)


def test_the_bytes_of_a_stored_lease_table_stay_the_same():
    table = table_from_bytes(TABLE, "place")
    assert table.leases == {
        shard(0): Lease(None, 3, True, 17, (shard(1), shard(2)), seen_ms=19),
        shard(1): Lease("w2", 7),
        shard(2): Lease("w1", 5),
        shard(3): Lease(parents=(shard(1),)),
        shard(4): Lease(is_first=True),
        "other/odd": Lease(parents=("other/12",), seen_ms=23),
    }
    assert table_to_bytes(table) == TABLE


numbers = st.dictionaries(keys, st.integers(0, 10**9)).map(by_stream)
records = st.builds(
    WorkerRecord, worker=st.just("x"), beat=st.integers(1, 2**53), is_sealed=st.booleans(), is_leaving=st.booleans(),
    parts=st.integers(0, 9), table_version=st.integers(0, 2**53), released=numbers, watermark=times, is_active=st.booleans(),
    group_watermark=times, loads=numbers, checkpoint_ms=times,
)  # fmt: skip


@given(records)
def test_a_worker_record_is_read_as_it_was_written(record):
    assert WorkerRecord.from_bytes(record.to_bytes(), "place") == record


stored = st.builds(
    StoredPosition,
    st.builds(
        ShardState,
        start=starts,
        position=st.none() | st.just(SequenceNumber("49", 3)),
        watermark=times,
        ended=st.booleans(),
    ),
    st.dictionaries(keys, st.lists(keys, max_size=2).map(tuple), max_size=2),
    st.booleans(),
)


@given(st.booleans(), st.dictionaries(st.builds(PositionKey, keys, st.integers(1, 99)), stored))
def test_a_position_part_is_read_as_it_was_written(is_sealed, positions):
    part = PositionPart("x", 5, is_sealed, positions)
    assert PositionPart.from_bytes(part.to_bytes(), "place") == part


def test_what_a_sink_names_must_be_plain_json():
    staged = Staged(CommitNumber("job/x", 1), {"at": datetime(2026, 1, 1, tzinfo=UTC)})
    with pytest.raises(TypeError):
        PositionPart("x", staged=[staged]).to_bytes()


@given(
    st.text(max_size=5)
    | st.from_regex(r"shardId-\d{10,13}", fullmatch=True)
    | st.from_regex(r"=*\d{1,3}", fullmatch=True)
)
def test_a_short_id_stands_for_one_shard(shard_id):
    assert long_id(short_id(shard_id)) == shard_id


def shard(number):
    return f"orders/shardId-{number:012d}"


def test_a_lease_takes_at_most_30_bytes_so_that_ten_thousand_fit_into_an_item_of_dynamodb():
    leases = {shard(number): Lease(f"{number % 50:032x}", 10**6 + number) for number in range(10_000)}
    assert len(table_to_bytes(LeaseTable(10**9, f"{1:032x}", leases=leases))) < 30 * 10_000


def test_the_record_of_a_worker_at_rest_fits_into_one_write_unit():
    record = WorkerRecord(f"{1:032x}", 10**7, parts=63, table_version=10**6, watermark=10**12, group_watermark=10**12)
    assert len(record.to_bytes()) < 256


def test_the_record_of_a_worker_with_a_hundred_busy_shards_fits_into_two_write_units():
    loads = {shard(1_000 + number): 40 for number in range(100)}
    assert len(WorkerRecord(f"{1:032x}", 10**7, parts=7, loads=by_stream(loads)).to_bytes()) < 2_048


def test_a_part_of_sixteen_shards_takes_at_most_six_write_units():
    state = ShardState(
        StartingPosition.at_timestamp(10**12),
        SequenceNumber("4" * 56, 17),
        "4" * 56,
        10**12,
        arrival_ms=10**12,
        tip_ms=10**12,
    )
    positions = {PositionKey(shard(number), 10**6): StoredPosition(state) for number in range(16)}
    assert len(PositionPart(f"{1:032x}", 10**7, positions=positions).to_bytes()) < 6 * 1_024


@pytest.mark.parametrize("read", [table_from_bytes, WorkerRecord.from_bytes, PositionPart.from_bytes])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"{", "Input data was truncated"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "missing required field"),
        (b'{"format":1}', "missing required field .*; if it belongs to another program, move it away"),
        (b'{"format":1,"deep":' + b"[" * 200_000, ""),
        (b'{"format":2}', "it has format 2"),
    ],
)
def test_a_document_that_cannot_be_read_names_its_place(read, value, reason):
    with pytest.raises(StateError, match=f"group/x in y cannot be read: .*{reason}"):
        read(value, "group/x in y")


@pytest.mark.parametrize("start", ["AT_TIMESTAMP", {"type": "AT_TIMESTAMP"}, {"type": "AFTER_SEQUENCE_NUMBER"}, 7])
def test_a_start_without_what_it_needs_is_refused(start):
    table = {"format": 1, "version": 1, "writer": "w", "start": start, "workers": [], "leases": {}}
    with pytest.raises(StateError, match=r"group/x in y cannot be read: .*\$.start"):
        table_from_bytes(json.dumps(table).encode(), "group/x in y")


@pytest.mark.parametrize(
    ("shard_id", "lease", "reason"),
    [
        ("shardId-" + "1" * 5_000, {}, "'shardId-1{72}'... is not a shard id: it has 5008 characters"),
        ("a", {"ended": True, "children": ["a"]}, "s/a is its own child"),
        ("a", {"parents": ["a"]}, "s/a is its own parent"),
    ],
)
def test_a_lease_that_no_shard_can_have_is_refused(shard_id, lease, reason):
    leases = {"s": {shard_id: {"epoch": 1, **lease}}}
    table = {"format": 1, "version": 1, "writer": "w", "start": "LATEST", "workers": [], "leases": leases}
    with pytest.raises(StateError, match=f"group/x in y cannot be read: {reason}"):
        table_from_bytes(json.dumps(table).encode(), "group/x in y")
