"""Sends events to chosen shards of the embedded endpoint when they are due."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable

from recordpublisher.demo.producer import kinesis_client

RECORDS_PER_CALL = 500
HASH_KEYS = 2**128


class Producer:
    """Owns the events that are still to be sent, by wall time, and the number sent to each shard."""

    def __init__(self, endpoint: str, stream: str, shards: int) -> None:
        self._kinesis = kinesis_client(endpoint)
        self._stream = stream
        self._shards = shards
        self._due: deque[tuple[float, int, int]] = deque()
        self.sent: Counter[str] = Counter()

    def plan(self, events: Iterable[tuple[float, int, int]]) -> None:
        """Add events as (seconds since the replay began, number of the shard, event time in epoch ms)."""
        self._due = deque(sorted([*self._due, *events]))

    @property
    def has_finished(self) -> bool:
        """Whether every planned event was sent."""
        return not self._due

    def send_due(self, elapsed: float) -> None:
        """Send what is due by now."""
        entries = []
        while self._due and self._due[0][0] <= elapsed:
            _, shard, event_time = self._due.popleft()
            entries.append(self._entry(shard, event_time))
        for start in range(0, len(entries), RECORDS_PER_CALL):
            for result in self._put(entries[start : start + RECORDS_PER_CALL]):
                self.sent[f"{self._stream}/{result['ShardId']}"] += 1

    def _put(self, entries: list[dict[str, str]]) -> list[dict[str, str]]:
        response = self._kinesis.put_records(StreamName=self._stream, Records=entries)
        if response["FailedRecordCount"]:
            raise ConnectionError(f"the endpoint refused {response['FailedRecordCount']} records")
        return list(response["Records"])

    def _entry(self, shard: int, event_time: int) -> dict[str, str]:
        middle = (2 * shard + 1) * HASH_KEYS // (2 * self._shards)
        return {"Data": json.dumps({"at": event_time}), "PartitionKey": "key", "ExplicitHashKey": str(middle)}
