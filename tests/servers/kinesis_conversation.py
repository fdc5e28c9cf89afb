"""One conversation with a Kinesis server, kept in a form in which servers can be compared."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import BotoCoreError, ClientError

Answers = dict[str, object]
FIRST = "shardId-000000000000"
REFERENCE = Path(__file__).parents[2] / "docs/reference/embedded-endpoint.md"


class Talk:
    """One conversation about one stream: asks, and keeps what is said in a form that servers can be compared in."""

    def __init__(self, kinesis: Any, stream: str) -> None:
        self.kinesis = kinesis
        self.stream = stream
        self.said: Answers = {}

    def refused(self, step: str, operation: str, **fields: Any) -> None:
        """Keep the error code that a call is answered with."""
        try:
            getattr(self.kinesis, operation)(**fields)
            self.said[step] = "no error"
        except ClientError as error:
            self.said[step] = error.response["Error"]["Code"]
        except BotoCoreError as error:
            self.said[step] = type(error).__name__

    def reshard(self, operation: str, **fields: str) -> None:
        """Split or merge and wait until that is done; servers are ACTIVE again somewhat later than they say."""
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

    def _wait_for(self, status: str, ask: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            answer = ask()
            if status in (answer, answer["ConsumerStatus"] if isinstance(answer, dict) else None):
                return
            time.sleep(0.02)
        pytest.fail(f"not {status} after a minute")

    def summary(self) -> dict[str, Any]:
        answer = self.kinesis.describe_stream_summary(StreamName=self.stream)["StreamDescriptionSummary"]
        assert isinstance(answer, dict)
        return answer

    def put(self, text: str, hash_key: int = 0) -> str:
        answer = self.kinesis.put_record(
            StreamName=self.stream, Data=text.encode(), PartitionKey="k", ExplicitHashKey=str(hash_key)
        )
        return str(answer["SequenceNumber"])

    def iterator(self, kind: str, shard: str = FIRST, **more: Any) -> str:
        answer = self.kinesis.get_shard_iterator(StreamName=self.stream, ShardId=shard, ShardIteratorType=kind, **more)
        return str(answer["ShardIterator"])

    def read(self, kind: str, shard: str = FIRST, **more: Any) -> list[str]:
        return texts(self.kinesis.get_records(ShardIterator=self.iterator(kind, shard, **more)))

    def shards(self, **more: Any) -> list[str]:
        return [s["ShardId"] for s in self.kinesis.list_shards(StreamName=self.stream, **more)["Shards"]]


def texts(answer: Any) -> list[str]:
    return [record["Data"].decode() for record in answer["Records"]]


@contextmanager
def talking(kinesis: Any, shard_count: int) -> Iterator[Talk]:
    talk = Talk(kinesis, f"s-{uuid4().hex[:12]}")
    kinesis.create_stream(StreamName=talk.stream, ShardCount=shard_count)
    talk.wait_active()
    yield talk
    talk.wait_active()
    kinesis.delete_stream(StreamName=talk.stream, EnforceConsumerDeletion=True)


def compare(server: str, mine: Answers, theirs: Answers, known: set[str]) -> None:
    """Demand that the answers agree but for the known steps, which must differ and stand in the reference page."""
    assert mine.keys() == theirs.keys()
    differing = {step: (mine[step], theirs[step]) for step in mine if mine[step] != theirs[step]}
    assert differing.keys() == known, {step: pair for step, pair in differing.items() if step not in known}
    page = REFERENCE.read_text()
    assert [step for step in known if f"| {server} | {step} |" not in page] == []
