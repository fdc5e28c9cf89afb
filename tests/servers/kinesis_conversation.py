"""Calls to a Kinesis server, with responses in a form in which servers can be compared."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import BotoCoreError, ClientError

Responses = dict[str, object]
FIRST = "shardId-000000000000"
REFERENCE = Path(__file__).parents[1] / "local/foreign/README.md"


class Conversation:
    """Calls a server for one stream, and records the responses in a form in which servers can be compared."""

    def __init__(self, kinesis: Any, stream: str) -> None:
        self.kinesis = kinesis
        self.stream = stream
        self.responses: Responses = {}

    def refused(self, step: str, operation: str, **fields: Any) -> None:
        """Record the error code of a call."""
        try:
            getattr(self.kinesis, operation)(**fields)
            self.responses[step] = "no error"
        except ClientError as error:
            self.responses[step] = error.response["Error"]["Code"]
        except BotoCoreError as error:
            self.responses[step] = type(error).__name__

    def reshard(self, operation: str, **fields: str) -> None:
        """Split or merge, and wait until that is done: a stream is ACTIVE again some time after the response."""
        deadline = time.monotonic() + 60
        while True:
            try:
                getattr(self.kinesis, operation)(StreamName=self.stream, **fields)
                return self.wait_active()
            except self.kinesis.exceptions.ResourceInUseException:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def wait_active(self) -> None:
        self._wait_for("ACTIVE", lambda: self.summary()["StreamStatus"])

    def wait_consumer(self, arn: str) -> None:
        self._wait_for("ACTIVE", lambda: self.kinesis.describe_stream_consumer(ConsumerARN=arn)["ConsumerDescription"])

    def _wait_for(self, status: str, describe: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            response = describe()
            if status in (response, response["ConsumerStatus"] if isinstance(response, dict) else None):
                return
            time.sleep(0.02)
        pytest.fail(f"not {status} after a minute")

    def summary(self) -> dict[str, Any]:
        response = self.kinesis.describe_stream_summary(StreamName=self.stream)["StreamDescriptionSummary"]
        assert isinstance(response, dict)
        return response

    def put(self, text: str, hash_key: int = 0) -> str:
        response = self.kinesis.put_record(
            StreamName=self.stream, Data=text.encode(), PartitionKey="k", ExplicitHashKey=str(hash_key)
        )
        return str(response["SequenceNumber"])

    def iterator(self, kind: str, shard: str = FIRST, **more: Any) -> str:
        response = self.kinesis.get_shard_iterator(
            StreamName=self.stream, ShardId=shard, ShardIteratorType=kind, **more
        )
        return str(response["ShardIterator"])

    def read(self, kind: str, shard: str = FIRST, **more: Any) -> list[str]:
        return texts(self.kinesis.get_records(ShardIterator=self.iterator(kind, shard, **more)))

    def shards(self, **more: Any) -> list[str]:
        return [s["ShardId"] for s in self.kinesis.list_shards(StreamName=self.stream, **more)["Shards"]]


def texts(response: Any) -> list[str]:
    return [record["Data"].decode() for record in response["Records"]]


@contextmanager
def open_conversation(kinesis: Any, shard_count: int) -> Iterator[Conversation]:
    conversation = Conversation(kinesis, f"s-{uuid4().hex[:12]}")
    kinesis.create_stream(StreamName=conversation.stream, ShardCount=shard_count)
    conversation.wait_active()
    yield conversation
    conversation.wait_active()
    kinesis.delete_stream(StreamName=conversation.stream, EnforceConsumerDeletion=True)


def compare(server: str, mine: Responses, theirs: Responses, known: set[str]) -> None:
    """Check that the responses agree except for the known steps, which must differ and be listed on the reference page."""
    assert mine.keys() == theirs.keys()
    differing = {step: (mine[step], theirs[step]) for step in mine if mine[step] != theirs[step]}
    assert differing.keys() == known, {step: pair for step, pair in differing.items() if step not in known}
    page = REFERENCE.read_text()
    assert [step for step in known if f"| {server} | {step} |" not in page] == []
