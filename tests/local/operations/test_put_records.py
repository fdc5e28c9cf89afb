from base64 import b64encode

import pytest

from recordpublisher.local import ManualClock, Quotas
from recordpublisher.local.api_errors import ApiError
from recordpublisher.local.quotas import Throttle
from recordpublisher.local.streams.account import Account
from recordpublisher.local.streams.shard import HASH_KEYS


@pytest.fixture(autouse=True)
def orders(ask) -> None:
    ask("CreateStream", StreamName="orders", ShardCount=2)


def entry(data: bytes = b"x", key: str = "k", **more: str) -> dict[str, str]:
    return {"Data": b64encode(data).decode(), "PartitionKey": key, **more}


def read_all(ask, shard: int) -> list[dict[str, object]]:
    place = {"StreamName": "orders", "ShardId": f"shardId-{shard:012d}", "ShardIteratorType": "TRIM_HORIZON"}
    return ask("GetRecords", **{"ShardIterator": ask("GetShardIterator", **place)["ShardIterator"]})["Records"]


def test_a_record_comes_back_as_it_was_put(ask):
    put = ask("PutRecord", StreamName="orders", **entry(b"\x00\xff", 'ü"\\\n', ExplicitHashKey="0"))
    assert put["ShardId"] == "shardId-000000000000"
    [record] = read_all(ask, 0)
    assert record["PartitionKey"] == 'ü"\\\n'
    assert record["Data"] == b64encode(b"\x00\xff").decode()
    assert record["SequenceNumber"] == put["SequenceNumber"]


def test_the_answer_of_put_records_is_in_the_order_of_the_request(ask):
    last = str(HASH_KEYS - 1)
    answer = ask("PutRecords", StreamName="orders", Records=[entry(ExplicitHashKey=k) for k in ("0", last, "1")])
    assert answer["FailedRecordCount"] == 0
    assert [record["ShardId"][-1] for record in answer["Records"]] == ["0", "1", "0"]
    numbers = [record["SequenceNumber"] for record in answer["Records"]]
    assert [record["SequenceNumber"] for record in read_all(ask, 0)] == [numbers[0], numbers[2]]


@pytest.mark.parametrize("count", [0, 501])
def test_a_call_takes_1_to_500_records(ask, count: int):
    with pytest.raises(ApiError, match="ValidationException"):
        ask("PutRecords", StreamName="orders", Records=[entry()] * count)


def test_a_record_may_have_1_mib_with_its_key_and_not_more(ask):
    ask("PutRecord", StreamName="orders", **entry(bytes((1 << 20) - 3), "key"))
    with pytest.raises(ApiError, match="ValidationException"):
        ask("PutRecord", StreamName="orders", **entry(bytes((1 << 20) - 2), "key"))


def test_a_stream_may_be_made_for_larger_records(ask):
    ask("CreateStream", StreamName="large", ShardCount=1, MaxRecordSizeInKiB=2048)
    ask("PutRecord", StreamName="large", **entry(bytes(2 * (1 << 20) - 1), "k"))


def test_a_call_may_have_10_mib_keys_counted(ask):
    full = [entry(bytes((1 << 20) - 1))] * 10
    ask("PutRecords", StreamName="orders", Records=full)
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        ask("PutRecords", StreamName="orders", Records=[*full, entry(b"")])


@pytest.mark.parametrize("data", ["!", "YQ", 'YQ=="', "YQ==\\"])
def test_data_that_is_not_base64_is_refused_and_nothing_is_stored(ask, data: str):
    with pytest.raises(ApiError, match="SerializationException"):
        ask("PutRecords", StreamName="orders", Records=[entry(), {"Data": data, "PartitionKey": "k"}])
    assert read_all(ask, 0) == read_all(ask, 1) == []


@pytest.mark.parametrize("more", [{"PartitionKey": ""}, {"PartitionKey": "k" * 257}, {"ExplicitHashKey": "-1"}])
def test_bad_keys_are_validation_errors(ask, more: dict[str, str]):
    with pytest.raises(ApiError, match="ValidationException"):
        ask("PutRecord", StreamName="orders", **{**entry(), **more})


def test_a_hash_key_past_the_ring_is_an_invalid_argument(ask):
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        ask("PutRecord", StreamName="orders", **entry(ExplicitHashKey=str(HASH_KEYS)))


def test_records_past_a_shards_rate_fail_one_by_one(ask, account: Account, clock: ManualClock):
    account.throttle = Throttle(Quotas(write_records=3), clock)
    answer = ask("PutRecords", StreamName="orders", Records=[entry(ExplicitHashKey="0")] * 5)
    assert answer["FailedRecordCount"] == 2
    assert [record.get("ErrorCode") for record in answer["Records"]] == [None] * 3 + [
        "ProvisionedThroughputExceededException"
    ] * 2
    assert len(read_all(ask, 0)) == 3
    with pytest.raises(ApiError, match="ProvisionedThroughputExceededException"):
        ask("PutRecord", StreamName="orders", **entry(ExplicitHashKey="0"))


def test_planned_faults_refuse_single_records(ask, account: Account):
    account.faults.fail_entries(1, "InternalFailure")
    answer = ask("PutRecords", StreamName="orders", Records=[entry(), entry()])
    assert [record.get("ErrorCode") for record in answer["Records"]] == ["InternalFailure", None]
