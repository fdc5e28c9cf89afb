"""The responses that LocalStack's tests recorded from AWS, compared with those of the endpoint to the same requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import boto3
import cbor2

from recordpublisher.local import serve_in_thread
from recordpublisher.local.account import ACCOUNT_ID

from .outcomes import Outcome

FILE = "tests/aws/services/kinesis/test_kinesis.snapshot.json"
TEXTS = ("test", "\u00fcnic\u00f6d\u00e9 \u7edf\u4e00\u7801 \U0001f4a3\U0001f4bb\U0001f525", "a" * 1000, "")
POLICIES = (
    ("AllowCrossAccountWrite", "kinesis:PutRecord"),
    ("AllowCrossAccountReadWrite", ["kinesis:PutRecord", "kinesis:GetRecords"]),
)
ANY = ("<", "arn:", "starting_hash", "ending_hash", "timestamp")
"""How a recorded value begins that differs from run to run."""


def compare_recordings(folder: Path) -> list[Outcome]:
    """One outcome for each recorded response."""
    recorded = json.loads((folder / FILE).read_text())
    outcomes = []
    for test, content in recorded.items():
        name = test.rpartition("::")[2]
        make = _RESPONSES.get(name)
        made = {} if make is None else _made(make)
        for key, expected in content["recorded-content"].items():
            full_name = f"{name}: {key}"
            outcomes.append(Outcome(full_name, difference(made.get(key), expected)))
    return outcomes


def difference(ours: Any, recorded: Any, at: str = "") -> str | None:
    """Where a response differs from the recorded one; None when it does not. Values that differ from run to run are placeholders."""
    if isinstance(recorded, dict) and isinstance(ours, dict):
        if ours.keys() != recorded.keys():
            return f"{at or 'the response'} has {sorted(ours)}, recorded {sorted(recorded)}"
        found = (difference(ours[key], recorded[key], f"{at}.{key}") for key in recorded)
        return next((each for each in found if each is not None), None)
    if isinstance(recorded, list) and isinstance(ours, list):
        if len(ours) != len(recorded):
            return f"{at} has {len(ours)} entries, recorded {len(recorded)}"
        found = (
            difference(one, other, f"{at}[{n}]") for n, (one, other) in enumerate(zip(ours, recorded, strict=True))
        )
        return next((each for each in found if each is not None), None)
    if isinstance(recorded, str) and recorded.startswith(ANY):
        return None if ours not in (None, "") else f"{at} is empty"
    shown = str(ours) if isinstance(ours, bytes) else ours
    return None if shown == recorded else f"{at} is {shown!r}, recorded {recorded!r}"


def _made(make: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    with serve_in_thread() as server:
        session = boto3.Session(aws_access_key_id="local", aws_secret_access_key="local", region_name="us-east-1")
        return make(session.client("kinesis", endpoint_url=server.endpoint.url))


def _four_shards(kinesis: Any) -> dict[str, Any]:
    kinesis.create_stream(StreamName="s")
    return {"Shards": kinesis.describe_stream(StreamName="s")["StreamDescription"]["Shards"]}


def _records(kinesis: Any) -> dict[str, Any]:
    shard_id = _one_shard(kinesis)[1]
    for text in TEXTS:
        kinesis.put_record(StreamName="s", Data=text.encode(), PartitionKey="1")
    start = {"ShardId": shard_id, "ShardIteratorType": "TRIM_HORIZON"}
    iterator = kinesis.get_shard_iterator(StreamName="s", **start)["ShardIterator"]
    found = kinesis.get_records(ShardIterator=iterator)["Records"]
    return {"Records": sorted(found, key=lambda record: record["Data"])}


def _consumers(kinesis: Any) -> dict[str, Any]:
    arn, _ = _one_shard(kinesis)
    _registered(kinesis, arn, "consumer")
    described = kinesis.describe_stream_consumer(StreamARN=arn, ConsumerName="consumer")["ConsumerDescription"]
    listed = kinesis.list_stream_consumers(StreamARN=arn)["Consumers"]
    return {"One_consumer_by_list_stream": listed, "One_consumer_by_describe_stream": described}


def _events(kinesis: Any) -> dict[str, Any]:
    return {"Events": _subscribed(kinesis, lambda put: {"Type": "TRIM_HORIZON"})}


def _events_from_time(kinesis: Any) -> dict[str, Any]:
    events = _subscribed(kinesis, lambda put: {"Type": "AT_TIMESTAMP", "Timestamp": 1})
    return {"Records": [record for event in events for record in event["Records"]]}


def _events_from_number(kinesis: Any) -> dict[str, Any]:
    start = {"Type": "AT_SEQUENCE_NUMBER"}
    events = _subscribed(kinesis, lambda put: {**start, "SequenceNumber": put["Records"][0]["SequenceNumber"]})
    return {"Records": [record for event in events for record in event["Records"]]}


def _subscribed(kinesis: Any, start: Callable[[Any], dict[str, Any]]) -> list[dict[str, Any]]:
    arn, shard_id = _one_shard(kinesis)
    consumer = _registered(kinesis, arn, "c1")
    records = [{"Data": f"Hello world_{n}".encode(), "PartitionKey": "1"} for n in range(5)]
    put = kinesis.put_records(StreamName="s", Records=records)
    response = kinesis.subscribe_to_shard(ConsumerARN=consumer, ShardId=shard_id, StartingPosition=start(put))
    for event in response["EventStream"]:
        if event["SubscribeToShardEvent"]["Records"]:
            response["EventStream"].close()
            return [event["SubscribeToShardEvent"]]
    return []


def _one_shard(kinesis: Any) -> tuple[str, str]:
    kinesis.create_stream(StreamName="s", ShardCount=1)
    described = kinesis.describe_stream(StreamName="s")["StreamDescription"]
    return described["StreamARN"], described["Shards"][0]["ShardId"]


def _registered(kinesis: Any, arn: str, name: str) -> str:
    consumer: str = kinesis.register_stream_consumer(StreamARN=arn, ConsumerName=name)["Consumer"]["ConsumerARN"]
    while kinesis.describe_stream_consumer(ConsumerARN=consumer)["ConsumerDescription"]["ConsumerStatus"] != "ACTIVE":
        pass
    return consumer


def _tags(kinesis: Any) -> dict[str, Any]:
    _one_shard(kinesis)
    kinesis.add_tags_to_stream(StreamName="s", Tags={"foo": "bar"})
    return {"Tags": kinesis.list_tags_for_stream(StreamName="s")["Tags"][0]}


def _policies(kinesis: Any) -> dict[str, Any]:
    arn, _ = _one_shard(kinesis)
    policies = [_policy(arn, *each) for each in POLICIES]

    def shown(call: Callable[..., Any], **fields: str) -> dict[str, Any]:
        response = call(ResourceARN=arn, **fields)
        status = {"HTTPHeaders": {}, "HTTPStatusCode": response.pop("ResponseMetadata")["HTTPStatusCode"]}
        policy = {"Policy": json.loads(response["Policy"])} if "Policy" in response else {}
        return {**response, **policy, "ResponseMetadata": status}

    return {
        "default_policy_if_not_set": shown(kinesis.get_resource_policy),
        "put_resource_policy_if_not_set": shown(kinesis.put_resource_policy, Policy=policies[0]),
        "get_resource_policy_after_set": shown(kinesis.get_resource_policy),
        "update_resource_policy": shown(kinesis.put_resource_policy, Policy=policies[1]),
        "get_resource_policy_after_update": shown(kinesis.get_resource_policy),
        "delete_resource_policy": shown(kinesis.delete_resource_policy),
        "get_resource_policy_after_delete": shown(kinesis.get_resource_policy),
    }


def _policy(arn: str, name: str, actions: str | list[str]) -> str:
    principal = {"AWS": f"arn:aws:iam::{arn.split(':')[4]}:root"}
    statement = {"Sid": name, "Effect": "Allow", "Principal": principal, "Action": actions, "Resource": arn}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def _cbor_error(kinesis: Any) -> dict[str, Any]:
    account, name = "111111111111", "wrong-stream-name"
    arn = f"arn:aws:kinesis:us-east-1:{ACCOUNT_ID}:stream/{name}"
    headers = {"X-Amz-Target": "Kinesis_20131202.DescribeStream", "Content-Type": "application/x-amz-cbor-1.1"}
    request = Request(kinesis.meta.endpoint_url, cbor2.dumps({"StreamARN": arn}), headers)
    try:
        urlopen(request)
    except HTTPError as error:
        with error:
            body = cbor2.loads(error.read())
        return {"cbor-error": {**body, "message": body["message"].replace(ACCOUNT_ID, account)}}
    raise AssertionError("the stream exists")


_RESPONSES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "test_create_stream_without_shard_count": _four_shards,
    "test_record_lifecycle_data_integrity": _records,
    "test_stream_consumers": _consumers,
    "test_add_tags_to_stream": _tags,
    "test_resource_policy_crud": _policies,
    "test_cbor_exceptions": _cbor_error,
    "test_subscribe_to_shard": _events,
    "test_subscribe_to_shard_with_at_timestamp": _events_from_time,
    "test_subscribe_to_shard_with_sequence_number_as_iterator": _events_from_number,
}
"""The requests of each test that has recorded responses."""
