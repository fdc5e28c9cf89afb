"""Plays the part of a user's producer: events with a time of their own, each into a chosen shard."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable

from ..producer import client_of

PER_CALL = 500
HASH_KEYS = 2**128


class Producer:
    """Owns what is still to be sent, by wall time, and how much was sent to each shard."""

    def __init__(self, endpoint: str, stream: str, shards: int) -> None:
        self._kinesis = client_of(endpoint)
        self._stream = stream
        self._shards = shards
        self._due: deque[tuple[float, int, int]] = deque()
        self.sent: Counter[str] = Counter()

    def plan(self, events: Iterable[tuple[float, int, int]]) -> None:
        """Events as (seconds since the play began, number of the shard, event time in epoch ms)."""
        self._due = deque(sorted([*self._due, *events]))

    @property
    def has_finished(self) -> bool:
        """Whether everything planned was sent."""
        return not self._due

    def send_due(self, elapsed: float) -> None:
        """Send what is due by now."""
        entries = []
        while self._due and self._due[0][0] <= elapsed:
            _, shard, event_time = self._due.popleft()
            entries.append(self._entry(shard, event_time))
        for start in range(0, len(entries), PER_CALL):
            some = entries[start : start + PER_CALL]
            for entry, answer in zip(some, self._answers(some), strict=True):
                self.sent[f"{self._stream}/{answer['ShardId']}"] += bool(entry)

    def _answers(self, entries: list[dict[str, str]]) -> list[dict[str, str]]:
        answer = self._kinesis.put_records(StreamName=self._stream, Records=entries)
        if answer["FailedRecordCount"]:
            raise ConnectionError(f"the endpoint refused {answer['FailedRecordCount']} records")
        return list(answer["Records"])

    def _entry(self, shard: int, event_time: int) -> dict[str, str]:
        middle = (2 * shard + 1) * HASH_KEYS // (2 * self._shards)
        return {"Data": json.dumps({"at": event_time}), "PartitionKey": "key", "ExplicitHashKey": str(middle)}
