from base64 import b64encode

import pytest

from recordpublisher.local import ManualClock, Quotas
from recordpublisher.local.account import Account, Throttle
from recordpublisher.local.errors import ApiError
from recordpublisher.local.shard import HASH_KEYS


@pytest.fixture(autouse=True)
def orders(call) -> None:
    call("CreateStream", StreamName="orders", ShardCount=2)


def entry(data: bytes = b"x", key: str = "k", **more: str) -> dict[str, str]:
    return {"Data": b64encode(data).decode(), "PartitionKey": key, **more}


def read_all(call, shard: int) -> list[dict[str, object]]:
    place = {"StreamName": "orders", "ShardId": f"shardId-{shard:012d}", "ShardIteratorType": "TRIM_HORIZON"}
    return call("GetRecords", **{"ShardIterator": call("GetShardIterator", **place)["ShardIterator"]})["Records"]


def test_a_record_is_read_as_it_was_put(call):
    put = call("PutRecord", StreamName="orders", **entry(b"\x00\xff", 'ü"\\\n', ExplicitHashKey="0"))
    assert put["ShardId"] == "shardId-000000000000"
    [record] = read_all(call, 0)
    assert record["PartitionKey"] == 'ü"\\\n'
    assert record["Data"] == b64encode(b"\x00\xff").decode()
    assert record["SequenceNumber"] == put["SequenceNumber"]


def test_results_of_put_records_are_in_the_order_of_the_request(call):
    last = str(HASH_KEYS - 1)
    response = call("PutRecords", StreamName="orders", Records=[entry(ExplicitHashKey=k) for k in ("0", last, "1")])
    assert response["FailedRecordCount"] == 0
    assert [record["ShardId"][-1] for record in response["Records"]] == ["0", "1", "0"]
    numbers = [record["SequenceNumber"] for record in response["Records"]]
    assert [record["SequenceNumber"] for record in read_all(call, 0)] == [numbers[0], numbers[2]]


@pytest.mark.parametrize("count", [0, 501])
def test_a_call_may_have_1_to_500_records(call, count: int):
    with pytest.raises(ApiError, match="ValidationException"):
        call("PutRecords", StreamName="orders", Records=[entry()] * count)


def test_a_record_may_have_1_mib_with_its_key_and_not_more(call):
    call("PutRecord", StreamName="orders", **entry(bytes((1 << 20) - 3), "key"))
    with pytest.raises(ApiError, match="ValidationException"):
        call("PutRecord", StreamName="orders", **entry(bytes((1 << 20) - 2), "key"))


def test_a_stream_may_be_created_for_larger_records(call):
    call("CreateStream", StreamName="large", ShardCount=1, MaxRecordSizeInKiB=2048)
    call("PutRecord", StreamName="large", **entry(bytes(2 * (1 << 20) - 1), "k"))


def test_a_call_may_have_10_mib_keys_counted(call):
    full = [entry(bytes((1 << 20) - 1))] * 10
    call("PutRecords", StreamName="orders", Records=full)
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        call("PutRecords", StreamName="orders", Records=[*full, entry(b"")])


@pytest.mark.parametrize("data", ["!", "YQ", 'YQ=="', "YQ==\\", "YR==", "YWF="])
def test_data_that_is_not_base64_is_refused_and_nothing_is_stored(call, data: str):
    with pytest.raises(ApiError, match="SerializationException"):
        call("PutRecords", StreamName="orders", Records=[entry(), {"Data": data, "PartitionKey": "k"}])
    assert read_all(call, 0) == read_all(call, 1) == []


@pytest.mark.parametrize("more", [{"PartitionKey": ""}, {"PartitionKey": "k" * 257}, {"ExplicitHashKey": "-1"}])
def test_invalid_keys_are_validation_errors(call, more: dict[str, str]):
    with pytest.raises(ApiError, match="ValidationException"):
        call("PutRecord", StreamName="orders", **{**entry(), **more})


def test_a_hash_key_of_more_than_128_bits_is_an_invalid_argument(call):
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        call("PutRecord", StreamName="orders", **entry(ExplicitHashKey=str(HASH_KEYS)))


def test_records_past_a_shards_rate_fail_one_by_one(call, account: Account, clock: ManualClock):
    account.throttle = Throttle(Quotas(write_records=3), clock)
    response = call("PutRecords", StreamName="orders", Records=[entry(ExplicitHashKey="0")] * 5)
    assert response["FailedRecordCount"] == 2
    assert [record.get("ErrorCode") for record in response["Records"]] == [None] * 3 + [
        "ProvisionedThroughputExceededException"
    ] * 2
    assert len(read_all(call, 0)) == 3
    with pytest.raises(ApiError, match="ProvisionedThroughputExceededException"):
        call("PutRecord", StreamName="orders", **entry(ExplicitHashKey="0"))


def test_planned_faults_refuse_single_records(call, account: Account):
    account.faults.fail_entries(1, "InternalFailure")
    response = call("PutRecords", StreamName="orders", Records=[entry(), entry()])
    assert [record.get("ErrorCode") for record in response["Records"]] == ["InternalFailure", None]


def test_a_sequence_number_for_ordering_is_one_of_the_endpoint(call):
    first = call("PutRecord", StreamName="orders", **entry())["SequenceNumber"]
    later = call("PutRecord", StreamName="orders", **entry(), SequenceNumberForOrdering=first)["SequenceNumber"]
    assert int(later) > int(first)
    with pytest.raises(ApiError, match="InvalidArgumentException: ExclusiveMinimumSequenceNumber 17 used in PutRecord"):
        call("PutRecord", StreamName="orders", **entry(), SequenceNumberForOrdering="17")
