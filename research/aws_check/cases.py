"""The cases: what is asked of a stream and a queue, of each the answer without what differs from account to account.

Needs nothing but boto3, so that it can run with a newer one than the library allows.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

Kinesis = Any
Ask = Callable[["Made"], object]
FIRST = "shardId-000000000000"
PATIENCE_SECONDS = 300


class Made:
    """What was created for the check: names, ARNs, and the client."""

    def __init__(self, kinesis: Kinesis, prefix: str, poll_seconds: float) -> None:
        self.kinesis = kinesis
        self.poll_seconds = poll_seconds
        self.provisioned = f"{prefix}-provisioned"
        self.on_demand = f"{prefix}-on-demand"
        self.consumer_name = self.queue_name = prefix
        self.arns: dict[str, str] = {}

    def eventually(self, describe: Callable[[], Any], wanted: object) -> Any:
        """Ask until the answer is the wanted one. Raises: TimeoutError."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := describe()) != wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{found!r} did not become {wanted!r}")
            time.sleep(self.poll_seconds)
        return found

    def status(self, stream: str) -> str:
        summary = self.kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
        self.arns[stream] = summary["StreamARN"]
        return str(summary["StreamStatus"])

    def iterator(self, **start: Any) -> str:
        start = {"ShardIteratorType": "TRIM_HORIZON", **start}
        answer = self.kinesis.get_shard_iterator(StreamName=self.provisioned, ShardId=FIRST, **start)
        return str(answer["ShardIterator"])

    def receive(self, dead: str = "", **options: Any) -> list[dict[str, Any]]:
        """Receive until something came or the patience is over."""
        name = "receive_dead_letter_queue_records" if dead else "receive_queue_records"
        deadline = time.monotonic() + PATIENCE_SECONDS / 5
        while time.monotonic() < deadline:
            found = getattr(self.kinesis, name)(QueueARN=self.arns["queue"], WaitTimeSeconds=5, **options)
            if found["QueueRecords"]:
                return list(found["QueueRecords"])
        return []

    def settle(self, operation: str, handle: str, **entry: Any) -> str:
        """The code of the entry's failure, or `done`."""
        entries = [{"ReceiptHandle": handle, **entry}]
        answer = getattr(self.kinesis, operation)(QueueARN=self.arns["queue"], Entries=entries)
        return str(answer["Failed"][0]["ErrorCode"]) if answer["Failed"] else "done"


def put_and_receive(made: Made, **options: Any) -> str:
    """A new record's handle."""
    made.kinesis.put_record(StreamName=made.on_demand, Data=b"case", PartitionKey="k")
    records = made.receive(**options)
    return str(records[0]["ReceiptHandle"]) if records else "none came"


def acknowledged_twice(made: Made) -> object:
    handle = put_and_receive(made)
    return [made.settle("acknowledge_queue_records", handle) for _ in range(2)]


def released_after_acknowledgement(made: Made) -> object:
    handle = put_and_receive(made)
    made.settle("acknowledge_queue_records", handle)
    return made.settle("update_queue_records_visibility", handle, VisibilityTimeoutSeconds=0)


def an_earlier_handle(made: Made) -> object:
    first = put_and_receive(made, VisibilityTimeoutSeconds=0)
    second = made.receive()[0]["ReceiptHandle"]
    return [made.settle("acknowledge_queue_records", handle) for handle in (first, second)]


def a_dead_letter(made: Made) -> object:
    """The queue lets a record be received twice."""
    handle = put_and_receive(made, VisibilityTimeoutSeconds=0)
    again = made.receive(VisibilityTimeoutSeconds=0)[0]
    dead = made.receive("dead")[0]
    seen = [again["ReceiveCount"], dead["ReceiveCount"], made.settle("acknowledge_queue_records", handle)]
    restored = made.settle("restore_dead_letter_queue_records", dead["ReceiptHandle"])
    back = made.receive()[0]
    return [*seen, restored, back["ReceiveCount"], made.settle("acknowledge_queue_records", back["ReceiptHandle"])]


def two_subscriptions(made: Made) -> object:
    def subscribe() -> object:
        start = {"ShardId": FIRST, "StartingPosition": {"Type": "LATEST"}}
        return made.kinesis.subscribe_to_shard(ConsumerARN=made.arns["consumer"], **start).keys()

    subscribe()
    return sorted(subscribe())  # type: ignore[call-overload]


CASES: dict[str, Ask] = {
    "a record in the future": lambda made: made.iterator(
        ShardIteratorType="AT_TIMESTAMP", Timestamp=time.time() + 3600
    ),
    "a number with LATEST": lambda made: made.iterator(ShardIteratorType="LATEST", StartingSequenceNumber="1"),
    "an invented iterator": lambda made: made.kinesis.get_records(ShardIterator="invented"),
    "10,001 records": lambda made: made.kinesis.get_records(ShardIterator=made.iterator(), Limit=10_001),
    "501 records": lambda made: made.kinesis.put_records(
        StreamName=made.provisioned, Records=[{"Data": b"", "PartitionKey": "k"}] * 501
    ),
    "a hash key past the last": lambda made: made.kinesis.put_record(
        StreamName=made.provisioned, Data=b"", PartitionKey="k", ExplicitHashKey=str(2**128)
    ),
    "a shard that is not there": lambda made: made.kinesis.get_shard_iterator(
        StreamName=made.provisioned, ShardId="shardId-000000000099", ShardIteratorType="LATEST"
    ),
    "the keys of a read": lambda made: sorted(
        made.kinesis.get_records(ShardIterator=made.iterator()).keys() - {"ResponseMetadata"}
    ),
    "a retention that is too short": lambda made: made.kinesis.decrease_stream_retention_period(
        StreamName=made.provisioned, RetentionPeriodHours=1
    ),
    "a dry run": lambda made: made.kinesis.get_records(ShardIterator=made.iterator(), DryRun=True),
    "a policy that is not there": lambda made: made.kinesis.get_resource_policy(
        ResourceARN=made.arns[made.provisioned]
    )["Policy"],
    "a consumer's name that is taken": lambda made: made.kinesis.register_stream_consumer(
        StreamARN=made.arns[made.provisioned], ConsumerName=made.consumer_name
    ),
    "a second subscription at once": two_subscriptions,
    "a split of an on-demand stream": lambda made: made.kinesis.split_shard(
        StreamName=made.on_demand, ShardToSplit=FIRST, NewStartingHashKey="5"
    ),
    "a queue of a provisioned stream": lambda made: made.kinesis.create_queue(
        QueueName="other", StreamConfigurationList=[{"StreamARN": made.arns[made.provisioned]}]
    ),
    "a queue's name that is taken": lambda made: made.kinesis.create_queue(
        QueueName=made.queue_name, StreamConfigurationList=[{"StreamARN": made.arns[made.on_demand]}]
    ),
    "dead letters without a count": lambda made: made.kinesis.update_queue(
        QueueARN=made.arns["queue"], QueueAttributes={"DeadLetterConfiguration": {"TargetType": "BUILT_IN"}}
    ),
    "an invented handle": lambda made: made.settle("acknowledge_queue_records", "invented"),
    "a record acknowledged twice": acknowledged_twice,
    "a record released after its acknowledgement": released_after_acknowledgement,
    "an earlier handle, then the newest": an_earlier_handle,
    "a dead letter, restored": a_dead_letter,
    "the deletion of a stream with a queue": lambda made: made.kinesis.delete_stream(
        StreamName=made.on_demand, EnforceConsumerDeletion=True
    ),
}
"""The last one would end the check if it were allowed."""
_CHANGING = (
    (r"(?s)(\[[^,\]]+Entry@)[^\]]*\]", r"\1...]"),
    (r"\b\d{12}\b", "ACCOUNT"),
    (r"\b\d{13}\b", "TIME"),
    (r"(?<=:)\d{10}\b", "TIME"),
    (r"\b[a-f0-9]{32}\b", "ID"),
    (r"\b[a-z]{2}(-[a-z]+)+-\d\b", "REGION"),
)
"""What differs from account to account and from hour to hour in a message, and what is shown instead."""


def observed(ask: Ask, made: Made) -> object:
    """What a case shows: the value, or the error's code and message without numbers of this account and hour."""
    try:
        return ask(made)
    except Exception as error:
        response = getattr(error, "response", None)
        if response is None:
            return f"{type(error).__name__}: {error}"
        message = response["Error"].get("Message", "")
        for pattern, text in _CHANGING:
            message = re.sub(pattern, text, message)
        return {"code": response["Error"]["Code"], "message": message}
