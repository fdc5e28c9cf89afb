"""A model of a worker of the KCL: which records it reads, by its lease table."""

from __future__ import annotations

from typing import Any

from recordpublisher.publishers.aggregation.kpl_format import parse_aggregate

from fakes.kcl.lease_table import SHARD_END, KclTable, lease_item


class KclWorker:
    """Reads a stream by the rows of its table.

    A shard is read from the record of its checkpoint on, and what is not above the checkpoint is dropped. A shard whose parent has a row
    waits for that row's SHARD_END. At the end of a shard its children get rows.
    """

    def __init__(self, kinesis: Any, table: KclTable, stream: str) -> None:
        self.kinesis, self.table, self.stream = kinesis, table, stream

    def read(self, most: int = 10**9) -> list[int]:
        """Read every shard to its tip, `most` user records of each, and checkpoint. Records are numbers."""
        numbers: list[int] = []
        done: set[str] = set()
        while readable := sorted(self._readable() - done):
            numbers += self._read_shard(readable[0], most)
            done.add(readable[0])
        return numbers

    def _readable(self) -> set[str]:
        checkpoints = self.table.checkpoints()
        open_keys = {key for key, (sequence, _) in checkpoints.items() if sequence != SHARD_END}
        parents = {key: set(row.get("parentShardId", {"SS": []})["SS"]) for key, row in self.table.rows.items()}
        return {key for key in open_keys if not parents[key] & open_keys}

    def _read_shard(self, shard: str, most: int) -> list[int]:
        sequence, sub = self.table.checkpoints()[shard]
        at = {"ShardIteratorType": sequence}
        if sequence.isdecimal():
            at = {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": sequence}
        iterator = self.kinesis.get_shard_iterator(StreamName=self.stream, ShardId=shard, **at)["ShardIterator"]
        answer = self.kinesis.get_records(ShardIterator=iterator)
        parts = [part for record in answer["Records"] for part in _user_records(record)]
        above = [part for part in parts if not sequence.isdecimal() or part[:2] > (int(sequence), sub)]
        if above[:most]:
            last = above[:most][-1]
            self.table.put(self._row(shard, str(last[0]), last[1]))
        if "NextShardIterator" not in answer and len(above) <= most:
            for child in answer["ChildShards"]:
                if child["ShardId"] not in self.table.rows:
                    self.table.put(lease_item(child["ShardId"], parentShardId={"SS": child["ParentShards"]}))
            self.table.put(self._row(shard, SHARD_END, 0))
        return [number for _, _, number in above[:most]]

    def _row(self, shard: str, sequence: str, sub: int) -> dict[str, Any]:
        return {**self.table.rows[shard], **lease_item(shard, sequence, sub)}


def _user_records(record: dict[str, Any]) -> list[tuple[int, int, int]]:
    """Sequence number, sub-sequence number and number of each user record."""
    parts = parse_aggregate(record["Data"])
    data = [record["Data"]] if parts is None else parts.data  # type: ignore[union-attr]
    return [(int(record["SequenceNumber"]), at, int(each)) for at, each in enumerate(data)]
