"""An endpoint with a folder of data. A copy of the folder in use is what a killed process leaves."""

import shutil
import sqlite3
from contextlib import closing

import msgspec
import pytest

import recordpublisher as rp
from recordpublisher.local import Delays, LocalKinesis, ManualClock
from recordpublisher.local.account import Account
from recordpublisher.local.dispatcher import OPERATIONS
from recordpublisher.local.storage import FILE, AccountStorage, Database

HOUR_MS = 3_600_000
SHARD = "shardId-000000000000"

RECORD = (7, 1_700_000_000_000, 5, b"fragment")

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def killed(folder, tmp_path):
    """Returns a folder as a killed process leaves it."""
    return lambda: shutil.copytree(folder, tmp_path / "killed")


def shards_of(kinesis):
    return kinesis.list_shards(StreamName="orders")["Shards"]


def records_from(kinesis, iterator):
    return kinesis.get_records(ShardIterator=iterator)["Records"]


def iterator_of(kinesis, shard, **start):
    start = start or {"ShardIteratorType": "TRIM_HORIZON"}
    return kinesis.get_shard_iterator(StreamName="orders", ShardId=shard, **start)["ShardIterator"]


def test_streams_shards_settings_consumers_and_tags_survive(serve, folder, killed):
    endpoint, kinesis = serve(streams={"orders": 2}, data=folder)
    arn = endpoint.endpoint.stream("orders").arn
    kinesis.split_shard(StreamName="orders", ShardToSplit=SHARD, NewStartingHashKey="1000")
    kinesis.merge_shards(
        StreamName="orders", ShardToMerge="shardId-000000000003", AdjacentShardToMerge="shardId-000000000001"
    )
    kinesis.increase_stream_retention_period(StreamName="orders", RetentionPeriodHours=48)
    kinesis.add_tags_to_stream(StreamName="orders", Tags={"a": "b"})
    kinesis.put_resource_policy(ResourceARN=arn, Policy='{"Version":"2012-10-17"}')
    kinesis.register_stream_consumer(StreamARN=arn, ConsumerName="c", Tags={"d": "e"})

    def shown(client):
        consumers = client.list_stream_consumers(StreamARN=arn)["Consumers"]
        return (
            shards_of(client),
            client.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"],
            client.list_tags_for_stream(StreamName="orders")["Tags"],
            client.get_resource_policy(ResourceARN=arn)["Policy"],
            [consumer["ConsumerARN"] for consumer in consumers],
            client.list_tags_for_resource(ResourceARN=consumers[0]["ConsumerARN"])["Tags"],
        )

    _, restarted = serve(data=killed())
    assert shown(restarted) == shown(kinesis)


def test_records_survive_with_their_numbers_and_times_and_new_ones_follow(serve, folder, killed):
    _, kinesis = serve(streams={"orders": 1}, data=folder)
    kinesis.put_record(StreamName="orders", Data=b"0", PartitionKey="k")
    entries = [{"Data": b"%d" % number, "PartitionKey": "k"} for number in range(1, 10)]
    kinesis.put_records(StreamName="orders", Records=entries)
    first = records_from(kinesis, iterator_of(kinesis, SHARD))
    _, restarted = serve(data=killed())
    restarted.put_record(StreamName="orders", Data=b"new", PartitionKey="k")
    found = records_from(restarted, iterator_of(restarted, SHARD))
    assert found[:10] == first
    assert found[10]["Data"] == b"new"
    assert found[10]["SequenceNumber"] > found[9]["SequenceNumber"]


def test_an_iterator_of_before_reads_on(serve, folder, killed):
    _, kinesis = serve(streams={"orders": 1}, data=folder)
    iterator = iterator_of(kinesis, SHARD, ShardIteratorType="LATEST")
    kinesis.put_record(StreamName="orders", Data=b"new", PartitionKey="k")
    _, restarted = serve(data=killed())
    assert [record["Data"] for record in records_from(restarted, iterator)] == [b"new"]


def test_a_closed_shard_ends_with_its_children_after_a_restart(serve, folder, killed):
    _, kinesis = serve(streams={"orders": 1}, data=folder)
    kinesis.split_shard(StreamName="orders", ShardToSplit=SHARD, NewStartingHashKey="1000")
    _, restarted = serve(data=killed())
    read = restarted.get_records(ShardIterator=iterator_of(restarted, SHARD))
    assert [child["ShardId"] for child in read["ChildShards"]] == ["shardId-000000000001", "shardId-000000000002"]


def rows(folder):
    with closing(sqlite3.connect(folder / FILE)) as database:
        return database.execute("SELECT count(*) FROM records").fetchone()[0]


async def test_records_past_retention_leave_the_file(folder, killed):
    clock = ManualClock()
    async with LocalKinesis(streams={"orders": 1}, clock=clock, data=folder) as endpoint:
        endpoint.stream("orders").put(b"old", "k")
        clock.advance(25 * HOUR_MS)
        endpoint.stream("orders").put(b"new", "k")
        assert rows(killed()) == 1


async def test_a_deleted_stream_leaves_nothing(folder, serve, killed):
    _, kinesis = serve(streams={"orders": 1}, data=folder)
    kinesis.put_record(StreamName="orders", Data=b"x", PartitionKey="k")
    kinesis.delete_stream(StreamName="orders")
    assert rows(killed()) == 0


async def test_a_stream_that_is_there_is_not_made_again(folder):
    async with LocalKinesis(streams={"orders": 3}, data=folder):
        pass
    async with LocalKinesis(streams={"orders": 1, "new": 1}, data=folder) as endpoint:
        assert len(endpoint.stream("orders").open_shards) == 3
        assert len(endpoint.stream("new").open_shards) == 1


async def test_without_a_folder_no_change_is_kept(tmp_path):
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        assert endpoint.stream("orders").open_shards[0].log._listeners == {}


async def test_a_folder_in_use_is_refused(folder):
    async with LocalKinesis(data=folder):
        with pytest.raises(
            rp.ConfigurationError, match=r"database is locked. Valid: a folder .* that no other endpoint uses"
        ):
            LocalKinesis(data=folder)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(rp.ConfigurationError, match="a folder that can be written"):
        LocalKinesis(data=tmp_path / "file")


async def test_a_folder_of_another_region_is_refused(folder):
    async with LocalKinesis(data=folder):
        pass
    with pytest.raises(rp.ConfigurationError, match="its streams are in us-east-1, and the endpoint is in eu-west-1"):
        LocalKinesis(data=folder, region="eu-west-1")


async def test_a_folder_of_another_version_is_refused(folder):
    async with LocalKinesis(data=folder):
        pass
    with closing(sqlite3.connect(folder / FILE)) as database:
        database.execute("PRAGMA user_version = 9")
    with pytest.raises(rp.ConfigurationError, match=r"its version is 9. Valid: .*version 1"):
        LocalKinesis(data=folder)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("UPDATE shards SET name = replace(name, '/0', '/9')", "it has records of shards that its streams do not have"),
        (
            "UPDATE account SET document = CAST(replace(CAST(document AS TEXT), 'shardId-000000000000', 'shardId-000000000007') AS BLOB)",
            "shard 0 of orders has the id",
        ),
        ("UPDATE account SET document = x'91'", "stored there cannot be read"),
    ],
    ids=["name", "id", "document"],
)
def test_a_file_that_somebody_has_changed_is_refused_with_its_records_kept(serve, folder, killed, change, reason):
    _, kinesis = serve(streams={"orders": 1}, data=folder)
    kinesis.put_record(StreamName="orders", Data=b"x", PartitionKey="k")
    damaged = killed()
    with closing(sqlite3.connect(damaged / FILE)) as database, database:
        database.execute(change)
    for _ in range(2):  # the file is closed again
        with pytest.raises(rp.ConfigurationError, match=reason):
            serve(data=damaged)
    with closing(sqlite3.connect(damaged / FILE)) as database:
        assert database.execute("SELECT count(*) FROM records").fetchone() == (1,)


async def test_a_killed_endpoint_keeps_the_records_of_children_that_were_split_in_the_process(folder, killed):
    async with LocalKinesis(streams={"orders": 1}, data=folder) as endpoint:
        endpoint.stream("orders").split(SHARD)
        endpoint.stream("orders").put(b"after", "key")
        copy = killed()
    async with LocalKinesis(data=copy) as endpoint:
        assert sum(len(shard.log) for shard in endpoint.stream("orders").shards.values()) == 1


def test_records_after_a_write_that_failed_are_found_again(tmp_path):
    database = Database(tmp_path)
    with pytest.raises(sqlite3.IntegrityError):
        database.append("orders/1/0", [(6, None, 5, b"")])
    database.append("orders/1/0", [RECORD])
    database.close()

    reopened = Database(tmp_path)
    try:
        assert list(reopened.records("orders/1/0")) == [RECORD]
    finally:
        reopened.close()


class Stored:
    """An account that a folder keeps."""

    def __init__(self, folder, clock):
        self.account = Account(clock, "us-east-1", Delays(consumer=0), None)
        self.storage = AccountStorage(self.account, folder)

    def call(self, operation, **fields):
        response = msgspec.json.decode(OPERATIONS[operation](self.account, msgspec.json.encode(fields)) or b"{}")
        self.account.report_change()
        return response

    def receive(self, queue, **options):
        return self.call("ReceiveQueueRecords", QueueARN=queue, **options)["QueueRecords"]


@pytest.fixture
def clock():
    return ManualClock(1_700_000_000_000)


def test_a_queue_goes_on_after_a_restart(tmp_path, clock):
    stored = Stored(tmp_path, clock)
    stored.call("CreateStream", StreamName="orders", ShardCount=2, StreamModeDetails={"StreamMode": "ON_DEMAND"})
    created = stored.call(
        "CreateQueue", QueueName="q", StreamConfigurationList=[{"StreamARN": ARN}], Tags={"team": "a"}
    )["QueueDescription"]
    queue = created["QueueARN"]
    for number in range(4):
        stored.account.find("orders").put(str(number).encode(), str(number))
    done, in_flight, released = (stored.receive(queue, Limit=1)[0] for _ in range(3))
    stored.call("AcknowledgeQueueRecords", QueueARN=queue, Entries=[{"ReceiptHandle": done["ReceiptHandle"]}])
    visible = {"ReceiptHandle": released["ReceiptHandle"], "VisibilityTimeoutSeconds": 0}
    stored.call("UpdateQueueRecordsVisibility", QueueARN=queue, Entries=[visible])
    stored.storage.close()

    again = Stored(tmp_path, clock)
    assert again.call("DescribeQueue", QueueARN=queue)["QueueDescription"] == created
    assert again.call("ListTagsForResource", ResourceARN=queue)["Tags"] == [{"Key": "team", "Value": "a"}]
    counts = {record["RecordId"]: record["ReceiveCount"] for record in again.receive(queue)}
    assert len(counts) == 2
    assert counts[released["RecordId"]] == 2
    handle = {"ReceiptHandle": in_flight["ReceiptHandle"]}
    assert again.call("AcknowledgeQueueRecords", QueueARN=queue, Entries=[handle])["Failed"] == []
    clock.advance(30_000)
    assert {record["RecordId"] for record in again.receive(queue)} == set(counts)
    again.storage.close()


async def test_an_endpoint_that_could_not_start_leaves_its_folder_to_the_next_one(folder):
    async with LocalKinesis() as other:
        with pytest.raises(rp.ConfigurationError, match="setting 'port' is"):
            await LocalKinesis(port=other.port, data=folder, streams={"orders": 1}).start()
    with pytest.raises(rp.ConfigurationError, match="setting 'stream' is 'orders-2:0'"):
        LocalKinesis(data=folder, streams={"orders-2": 0})
    async with LocalKinesis(data=folder) as endpoint:
        assert list(endpoint.account.streams()) == ["orders"]


def test_what_has_expired_does_not_appear_again_after_a_restart_with_a_longer_retention(folder):
    clock = ManualClock()
    account = Account(clock, "us-east-1", Delays(), None)
    storage = AccountStorage(account, folder)
    stream = account.create_stream("orders", 1)
    account.report_change()
    stream.put(b"expires with its shard", "key")
    stream.split(SHARD)
    clock.advance(HOUR_MS)
    stream.put(b"expires", "key")
    clock.advance(24 * HOUR_MS + 1)
    stream.put(b"stays", "key")
    body = msgspec.json.encode({"StreamName": "orders", "RetentionPeriodHours": 48})
    OPERATIONS["IncreaseStreamRetentionPeriod"](account, body)
    account.report_change()
    shown = {each.id: len(each.log) for each in stream.shards.values()}
    storage.close()

    restored = Account(clock, "us-east-1", Delays(), None)
    AccountStorage(restored, folder).close()
    assert {each.id: len(each.log) for each in restored.find("orders").shards.values()} == shown
    assert sum(shown.values()) == 1
    assert SHARD not in shown
