"""Other servers and ours agree on registering consumers and subscribing to shards."""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from servers.kinesis_conversation import FIRST, Conversation, Responses, compare, open_conversation, texts

pytestmark = [pytest.mark.servers, pytest.mark.timeout(90)]

DIFFERENCES: dict[str, set[str]] = {
    "moto": {
        "arn carries the creation time",
        "status at first",
        "consumers in the summary",
        "taken name",
        "gone after deregistration",
    },
    "kinesis_local": set(),
    "ministack": {"status at first"},
}


@pytest.mark.parametrize("server", DIFFERENCES)
def test_servers_agree_on_registration(ours: Any, foreign: Callable[[str], Any], server: str):
    compare(server, registration(ours), registration(foreign(server)), DIFFERENCES[server])


def test_ministack_agrees_on_subscribing(ours: Any, ministack: Any):
    compare("ministack", subscribing(ours), subscribing(ministack), {"the shard ends with"})


def registration(kinesis: Any) -> Responses:
    """Register, look up, list and deregister a consumer."""
    with open_conversation(kinesis, 1) as conversation:
        arn = conversation.summary()["StreamARN"]
        responses = conversation.responses
        consumer = kinesis.register_stream_consumer(StreamARN=arn, ConsumerName="c")["Consumer"]
        responses["arn carries the creation time"] = bool(re.fullmatch(r".*/consumer/c:\d+", consumer["ConsumerARN"]))
        responses["status at first"] = consumer["ConsumerStatus"]
        conversation.wait_consumer(consumer["ConsumerARN"])
        described = kinesis.describe_stream_consumer(StreamARN=arn, ConsumerName="c")["ConsumerDescription"]
        responses["found by name"] = [described["ConsumerStatus"], described["StreamARN"] == arn]
        responses["listed"] = [c["ConsumerName"] for c in kinesis.list_stream_consumers(StreamARN=arn)["Consumers"]]
        responses["consumers in the summary"] = conversation.summary().get("ConsumerCount")
        conversation.refused("taken name", "register_stream_consumer", StreamARN=arn, ConsumerName="c")
        conversation.refused("unknown consumer", "describe_stream_consumer", StreamARN=arn, ConsumerName="missing")
        kinesis.deregister_stream_consumer(StreamARN=arn, ConsumerName="c")
        responses["gone after deregistration"] = gone(conversation, arn)
    return responses


def gone(conversation: Conversation, arn: str) -> str:
    """Describe the consumer until it is not found, at most twenty times, a tenth of a second apart."""
    for _ in range(20):
        conversation.refused("call", "describe_stream_consumer", StreamARN=arn, ConsumerName="c")
        if (response := conversation.responses.pop("call")) != "no error":
            return str(response)
        time.sleep(0.1)
    return "still there"


def subscribing(kinesis: Any) -> Responses:
    """Subscribe: backlog, live push, heartbeat, the 5 s rule, take-over and the end of a shard."""
    with open_conversation(kinesis, 1) as conversation:
        responses = conversation.responses
        arn = conversation.summary()["StreamARN"]
        consumer = kinesis.register_stream_consumer(StreamARN=arn, ConsumerName="c")["Consumer"]["ConsumerARN"]
        conversation.wait_consumer(consumer)
        start = {"ConsumerARN": consumer, "ShardId": FIRST, "StartingPosition": {"Type": "TRIM_HORIZON"}}
        conversation.refused("unknown consumer", "subscribe_to_shard", **{**start, "ConsumerARN": consumer + "0"})
        conversation.put("backlog")
        events = kinesis.subscribe_to_shard(**start)["EventStream"]
        stream = iter(events)
        backlog = next(stream)["SubscribeToShardEvent"]
        responses["backlog"] = [texts(backlog), backlog["MillisBehindLatest"], "ChildShards" in backlog]
        began = time.monotonic()
        last = conversation.put("live")
        live = next(stream)["SubscribeToShardEvent"]
        responses["live"] = [texts(live), int(live["ContinuationSequenceNumber"]) >= int(last)]
        conversation.refused("again within 5 s", "subscribe_to_shard", **start)
        heartbeat = next(stream)["SubscribeToShardEvent"]
        responses["heartbeat"] = [
            texts(heartbeat),
            4.5 < time.monotonic() - began < 9.5,
        ]  # about five seconds; one, not two
        responses.update(taken_over(conversation, start, stream, heartbeat["ContinuationSequenceNumber"]))
        events.close()
    return responses


def taken_over(
    conversation: Conversation, start: dict[str, Any], former: Iterator[Any], continuation: str
) -> Responses:
    """Subscribe a second time after 5 s, after the first one's continuation, and split the shard."""
    time.sleep(0.2)
    position = {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": continuation}
    events = conversation.kinesis.subscribe_to_shard(**{**start, "StartingPosition": position})["EventStream"]
    try:
        end_of_former: object = [texts(event["SubscribeToShardEvent"]) for event in former]
    except ClientError as error:
        end_of_former = error.response["Error"]["Code"]
    conversation.put("after the take-over")
    stream = iter(events)
    seen = next(filter(None, (texts(event["SubscribeToShardEvent"]) for event in stream)))
    conversation.kinesis.split_shard(
        StreamName=conversation.stream, ShardToSplit=FIRST, NewStartingHashKey=str(1 << 127)
    )
    *_, last = [event["SubscribeToShardEvent"] for event in stream]
    events.close()
    children = [child["ShardId"] for child in last["ChildShards"]]
    return {
        "the former one ends with": end_of_former,
        "the new one goes on with": seen,
        "the shard ends with": [children, last.get("ContinuationSequenceNumber")],
    }
