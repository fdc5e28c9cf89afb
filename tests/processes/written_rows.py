"""Reads what a job has written, for the kill tests: rows of PostgreSQL, or files of JSON lines."""

import json
from pathlib import Path

import psycopg


class WrittenTable:
    """Rows of a table without a key, so that a duplicate write is visible."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._connection = psycopg.connect(uri, autocommit=True)
        self._connection.execute(
            "create table orders (id bigserial, number int, key int, shard_id text, sequence_number text)"
        )

    def properties(self) -> dict[str, object]:
        return {"flink.sink": "sql", "flink.sink.sql.uri": self._uri, "flink.sink.sql.table": "orders"}

    def count(self) -> int:
        return self._connection.execute("select count(*) from orders").fetchone()[0]

    def cut_connections(self) -> None:
        """Cut all connections, as a restart or a fail-over of the server does."""
        self._connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
        )

    def close(self) -> list[tuple[int, int, str, int]]:
        """Every row as (number, key, shard, sequence number), in the order of writing."""
        with self._connection:
            rows = self._connection.execute("select number, key, shard_id, sequence_number from orders order by id")
            return [(number, key, shard, int(sequence)) for number, key, shard, sequence in rows.fetchall()]


class WrittenFiles:
    """Lines of the visible files; each is read once, since a file never changes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, list[dict]] = {}

    def properties(self) -> dict[str, object]:
        return {"flink.sink": "jsonl", "flink.sink.jsonl.path": self._folder}

    def count(self) -> int:
        for path in self._folder.glob("orders/*/*.jsonl"):
            if path not in self._read:
                self._read[path] = [json.loads(line) for line in path.read_text().splitlines()]
        return sum(map(len, self._read.values()))

    def close(self) -> list[tuple[int, int, str, int]]:
        """Every line as `WrittenTable.close` returns rows: shards by creation, their files by sequence number."""
        self._read.clear()
        self.count()
        paths = sorted(self._read, key=lambda path: (path.parent.name, int(path.name.partition(".")[0])))
        lines = [line for path in paths for line in self._read[path]]
        return [
            (line["value"]["number"], line["value"]["key"], line["shardId"], int(line["sequenceNumber"]))
            for line in lines
        ]
