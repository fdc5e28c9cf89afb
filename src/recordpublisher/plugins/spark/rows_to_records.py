"""Turns the rows of a written DataFrame into Kinesis records, adds ids to them, and rejects rows that cannot be written."""

from __future__ import annotations

import json
import logging
import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import msgspec
import pyarrow as pa

from recordpublisher.fetcher.pipeline.dead_letter_format import DeadLetter
from recordpublisher.fetcher.sink import Checkpoint, Sink, SinkContext
from recordpublisher.plugins.sinks.kinesis.pending_records import (
    VALIDATION_EXCEPTION,
    FailedRecord,
    PendingRecord,
    short_key,
    size_of,
)
from recordpublisher.publishers.decoding_errors import UNDECODABLE
from recordpublisher.publishers.errors import ConfigurationError, SinkError
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.retry import RetryPolicy
from recordpublisher.publishers.shards import Shard, stream_name


@dataclass(frozen=True, slots=True)
class RowsToRecords:
    """Makes Kinesis records of one task's rows.

    - `stream`: the target of all rows, or None if a column names the target of each row.
    - `ids`, `field`: if given, `ids` makes an id for each row, and `field` inserts the id into the row's data.
    """

    columns: WriteColumns
    stream: str | None
    ids: RowIds | None = None
    field: IdField | None = None

    def records_of(self, rows: pa.RecordBatch) -> dict[str, list[PendingRecord]]:
        """Return the records of each target stream, in the order of the rows.

        Raises: SinkError if a row has no data or no target, or if the id cannot be inserted into its data.
        """
        data = self._required(rows, self.columns.data, "data")
        streams = self._required(rows, self.columns.stream, "stream") if self.columns.stream is not None else None
        keys = _texts(rows, self.columns.partition_key)
        hash_keys = _texts(rows, self.columns.explicit_hash_key) or [None] * len(data)
        if self.ids is not None and self.field is not None:
            data, keys = _with_ids(self.ids, self.field, streams or [self.stream] * len(data), keys, hash_keys, data)
        records = [
            PendingRecord(one, key, hash_key, size_of(one, key))
            for one, key, hash_key in zip(data, _keys(keys, len(data)), hash_keys, strict=True)
        ]
        return _by_stream(streams, records) if streams is not None else {str(self.stream): records}

    def valid_rows(self, rows: pa.RecordBatch, reject: RejectRow | None) -> pa.RecordBatch:
        """Pass each row that cannot become a record to `reject`, and return the other rows.

        If `reject` is None, return all rows. `records_of` then fails at a bad row.
        """
        return rows if reject is None else valid_rows(rows, self.columns, self.stream, self.field, reject)

    def _required(self, rows: pa.RecordBatch, place: int, name: str) -> list[Any]:
        column = rows.column(place)
        if column.null_count:
            row = column.is_null().index(True).as_py()
            shown = {
                rows.schema.field(at).name: str(rows.column(at)[row])[:60] for at in self._shown_places() if at != place
            }
            raise SinkError(f"a row has no {name} (null): {shown}; filter such rows out")
        return payloads_of(column) if name == "data" else column.to_pylist()

    def _shown_places(self) -> list[int]:
        columns = self.columns
        places = (columns.stream, columns.partition_key, columns.explicit_hash_key, columns.data)
        return [place for place in places if place is not None]


SLICE_ROWS = 2_000
SLICE_BYTES = 8 * 2**20
"""Spark's batches are converted in slices of at most this size. This limits the memory of records that are not put yet."""


def slices_of_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the batch in pieces of bounded size, without copying."""
    mean = batch.nbytes / max(1, batch.num_rows)
    rows = max(1, min(SLICE_ROWS, int(SLICE_BYTES / max(1.0, mean))))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


RANDOM_KEY_BYTES = 8


def _texts(rows: pa.RecordBatch, place: int | None) -> list[str | None] | None:
    return None if place is None else rows.column(place).to_pylist()


def _keys(keys: Sequence[str | None] | None, count: int) -> list[str]:
    """Return a key for each of `count` rows. A row without a key gets a random one, so that such rows spread over the shards."""
    if keys is not None and None not in keys:
        return list(keys)  # type: ignore[arg-type]
    width = 2 * RANDOM_KEY_BYTES
    drawn = os.urandom(RANDOM_KEY_BYTES * count).hex()
    random = [drawn[width * row : width * (row + 1)] for row in range(count)]
    return random if keys is None else [key if key is not None else random[row] for row, key in enumerate(keys)]


def _with_ids(
    ids: RowIds,
    field: IdField,
    streams: Sequence[Any],
    keys: Sequence[str | None] | None,
    hash_keys: Sequence[str | None],
    data: Sequence[bytes],
) -> tuple[list[bytes], list[str | None]]:
    """Return each row's data with its id inserted, and each row's key.

    A row without a key gets its id as the key. If the row is written again, it then goes to the same shard.
    """
    given = keys if keys is not None else [None] * len(data)
    made = [ids.id_of(*row) for row in zip(streams, given, hash_keys, data, strict=True)]
    marked = [field.insert_id(one, row_id) for one, row_id in zip(data, made, strict=True)]
    return marked, [row_id if key is None else key for key, row_id in zip(given, made, strict=True)]


def _by_stream(streams: Sequence[str], records: Sequence[PendingRecord]) -> dict[str, list[PendingRecord]]:
    by_stream: dict[str, list[PendingRecord]] = defaultdict(list)
    for stream, record in zip(streams, records, strict=True):
        by_stream[stream].append(record)
    return dict(by_stream)


TEXT = ("string", "varchar", "char")


VALID = {"data": ("binary", *TEXT), "partitionKey": TEXT, "explicitHashKey": TEXT, "stream": TEXT}
"""The columns of a DataFrame that is written, each with the Spark types that it may have."""


class ColumnError(ConfigurationError):
    """Raised if a DataFrame cannot be written. The message names the column, the problem, and what is valid.

    - `given`: the type of the column, or None if it is missing.
    """

    def __init__(self, column: str, given: str | None, valid: str, *, reason: str = "") -> None:
        super().__init__(column, given, valid)
        fact = reason or ("is missing" if given is None else f"has the type {given}")
        self.args = (f"column '{column}' {fact}. Valid: {valid}",)


@dataclass(frozen=True, slots=True)
class WriteColumns:
    """The index of each column in the rows of a written DataFrame, or None if there is no such column."""

    data: int
    partition_key: int | None = None
    explicit_hash_key: int | None = None
    stream: int | None = None


def columns_of(fields: Sequence[tuple[str, str]], stream: str | None) -> WriteColumns:
    """Return the index of each column of a DataFrame with these `fields` (pairs of name and Spark type). Other columns are ignored.

    - `stream`: the option `stream`. If it is set, the column `stream` is not used.

    Raises: ColumnError if a column is missing, misspelt or of another type.
    """
    _reject_near_misses([name for name, _ in fields])
    places = {name: _place_of(name, fields) for name in VALID}
    data = places["data"]
    if data is None:
        raise ColumnError("data", None, f"BINARY or STRING, the payload of each record; given: {_listed(fields)}")
    if stream is None and places["stream"] is None:
        raise ColumnError("stream", None, "STRING, the target of each row; or set the option 'stream' for all of them")
    of_column = places["stream"] if stream is None else None
    return WriteColumns(data, places["partitionKey"], places["explicitHashKey"], of_column)


def payloads_of(column: Any) -> list[Any]:
    """Return the payloads of an Arrow column. Text becomes UTF-8, and null becomes None."""
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    return list(column.to_pylist())


def _place_of(name: str, fields: Sequence[tuple[str, str]]) -> int | None:
    """Return the index of the column `name`, or None if there is none. Case is ignored, as in Spark.

    Raises: ColumnError if the column exists twice or has another type.
    """
    found = [place for place, (given, _) in enumerate(fields) if given.lower() == name.lower()]
    if not found:
        return None
    if len(found) > 1:
        given = " and ".join(fields[place][0] for place in found)
        raise ColumnError(name, given, "one column of that name", reason=f"exists more than once, as {given}")
    given_type = fields[found[0]][1]
    if given_type.partition("(")[0].split()[0] not in VALID[name]:
        raise ColumnError(
            name, given_type.upper(), " or ".join(kind.upper() for kind in VALID[name][:2] if kind != "varchar")
        )
    return found[0]


def _reject_near_misses(names: Sequence[str]) -> None:
    """Check that no column has a misspelt name, because unknown columns are ignored.

    With `partition_key` instead of `partitionKey`, each row would get a random key.

    Raises: ColumnError if a name is misspelt.
    """
    meant = {name.lower(): name for name in VALID}
    for given in names:
        plain = given.replace("_", "").replace("-", "").lower()
        if plain in meant and given.lower() != plain:
            valid = f"'{meant[plain]}' if that column is meant; otherwise drop this one from the DataFrame"
            raise ColumnError(given, given, valid, reason="would be ignored")


def _listed(fields: Sequence[tuple[str, str]]) -> str:
    return ", ".join(name for name, _ in fields) or "none"


QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties that Spark sets for the tasks of a streaming query, and for tasks that run inside foreachBatch."""


EXECUTION, ROOT_EXECUTION = "spark.sql.execution.id", "spark.sql.execution.root.id"
"""Local properties of Spark with the numbers of two actions: the action that the task belongs to, and the batch's action.

The two numbers are equal if the query itself writes. They differ if the write is inside foreachBatch.
"""


ID_BYTES = 16


MOST_TEXTS = 10_000
"""How many combinations of stream and keys are cached at most. Formatting their text takes a third of the time of making an id."""


def id_prefix_of(local_property: Callable[[str], str | None], run: str, task: int) -> str:
    """Return a prefix for the ids of one task's rows.

    In a query the prefix names the query, the batch, the write within the batch, and the task. A batch that runs again makes the same
    writes, so its rows get the same ids. If Spark does not number the writes, `run` distinguishes the writes of one batch. Outside a query
    the prefix names `run` and the task.

    - `local_property`: returns a local property that Spark has set for the task.
    - `run`: a random id of this writer.
    """
    query, batch = local_property(QUERY), local_property(BATCH)
    if query is None or batch is None:
        return f"{run}/{task}"
    action, root = local_property(EXECUTION), local_property(ROOT_EXECUTION)
    write = run if action is None or root is None else int(action) - int(root)
    return f"{query}/{batch}/{write}/{task}"


class RowIds:
    """Makes the ids of one task's rows from the content of each row. Equal rows are counted, so that they get different ids.

    The ids do not depend on the order of the rows, because the order may differ between attempts. An object of this class needs about 80 B
    of memory for each row.

    - `scope`: a text that makes the ids different from those of other tasks, such as the result of `id_prefix_of`.
    """

    def __init__(self, scope: str) -> None:
        self._start = blake2b(digest_size=ID_BYTES, key=blake2b(scope.encode()).digest())
        self._texts: dict[tuple[str | None, ...], bytes] = {}
        self._seen: set[int] = set()
        self._equal: dict[int, int] = {}

    def id_of(self, stream: str, partition_key: str | None, explicit_hash_key: str | None, data: bytes) -> str:
        """Return an id of 32 hexadecimal digits for a row with this content."""
        named = stream, partition_key, explicit_hash_key
        text = self._texts.get(named)
        if text is None:
            text = self._text_of(named)
        made = self._start.copy()
        made.update(b"%b%d%b" % (data, len(data), text))
        digest = made.digest()
        short = int.from_bytes(digest[:8], "big")
        if short not in self._seen:
            self._seen.add(short)
            return digest.hex()
        self._equal[short] = count = self._equal.get(short, 0) + 1
        made.update(b" again %d" % count)
        return made.hexdigest()

    def _text_of(self, named: tuple[str | None, ...]) -> bytes:
        """Return stream and keys as the text that is hashed. It is cached, because many rows have the same stream and keys."""
        if len(self._texts) >= MOST_TEXTS:
            self._texts.clear()
        self._texts[named] = text = "".join([f" {name!r}" for name in named]).encode()
        return text


class IdField:
    """Inserts the id of a row as a field of its JSON object.

    For speed, data is parsed only if it contains the name of the field. Other data is only checked for the braces of an object.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._quoted = json.dumps(name, ensure_ascii=False).encode()
        self._begin = b"{" + self._quoted + b':"'

    def insert_id(self, data: bytes, row_id: str) -> bytes:
        """Return the JSON object `data` with the id as its first field.

        Raises: SinkError if the data is not a JSON object, or already has the field.
        """
        problem = self.problem_with(data)
        if problem is not None:
            raise SinkError(problem)
        rest = data.strip()[1:].lstrip()
        return self._begin + row_id.encode() + (b'"' if rest == b"}" else b'",') + rest

    def problem_with(self, data: bytes) -> str | None:
        """Return why an id cannot be inserted into the data, or None if it can."""
        text = data.strip()
        if not (text.startswith(b"{") and text.endswith(b"}")):
            return f"idField adds '{self._name}' to a JSON object, but the data of a row is {_shown(data)}"
        if self._quoted in text and self._has_field(text):
            return f"idField is '{self._name}', but the data of a row already has that field: {_shown(data)}"
        return None

    def _has_field(self, text: bytes) -> bool:
        try:
            return self._name in msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        except UNDECODABLE:
            return True


def _shown(data: bytes) -> str:
    return f"{data[:60]!r}{'...' if len(data) > 60 else ''} ({len(data)} bytes)"


LOG = logging.getLogger("recordpublisher.spark")


_NO_STATE = Checkpoint({"shards": {}})


RejectRow = Callable[[str, FailedRecord], None]
"""A function that receives each row that cannot be put. Its arguments are the target stream, and the row's data with the reason."""


class RejectedRows:
    """Owns the rows that one attempt of a task could not put, and their dead-letter sink. The sink is opened for the first such row.

    When a task succeeds, its dead letters are stored. Those of a failed attempt may or may not be stored. The next attempt writes them
    again with the same `sequenceNumber`.

    - `make_sink`: makes the dead-letter sink, or None if such rows are only counted.
    - `where`: how dead letters name the task.
    - `scope`: makes the ids of these rows different from those of other tasks.
    - `outages`: how the dead-letter sink retries the calls of its service.
    """

    def __init__(
        self,
        make_sink: Callable[[], Sink] | None,
        task: int,
        where: str,
        scope: str,
        outages: RetryPolicy | None = None,
    ) -> None:
        self._make_sink = make_sink
        self._task = task
        self._where = where
        self._ids = RowIds(scope)
        context = SinkContext(request_checkpoint=self._request_flush)
        self._context = context if outages is None else replace(context, outages=outages)
        self._pending: deque[tuple[str, FailedRecord]] = deque()
        self._sink: Sink | None = None
        self._needs_flush = False
        self._has_warned = False
        self.letters = 0

    def add(self, stream: str, failed: FailedRecord) -> None:
        """Keep a row until it is written. Writers call this on the loop, and the task calls it in its thread."""
        if self._make_sink is not None:
            self._pending.append((stream, failed))
        elif not self._has_warned:
            self._has_warned = True
            LOG.warning("%s; further failed rows of this task are counted and not logged", self._reason(stream, failed))

    async def write(self) -> None:
        """Write the added rows as dead letters.

        Raises: the errors of the sink. The task then fails, so that no dead letter is lost.
        """
        while self._pending:
            sink = self._sink or await self._open_sink()
            await sink.write(self._letter(*self._pending.popleft()))
            self.letters += 1
        if self._needs_flush and self._sink is not None:
            self._needs_flush = False
            await self._sink.flush(_NO_STATE)

    async def wait_until_stored(self) -> None:
        """Write the added rows, wait until every dead letter is stored, and close the sink. Raises: the errors of the sink."""
        await self.write()
        if self._sink is not None:
            await self._sink.flush(_NO_STATE)
            await self.close()

    async def close(self) -> None:
        """Close the sink without a flush."""
        sink, self._sink = self._sink, None
        if sink is not None:
            await sink.close()

    async def _open_sink(self) -> Sink:
        assert self._make_sink is not None
        self._sink = self._make_sink()
        await self._sink.open(self._context)
        return self._sink

    def _request_flush(self) -> None:
        self._needs_flush = True

    def _letter(self, stream: str, failed: FailedRecord) -> RecordBatch:
        row_id = self._ids.id_of(stream, None, None, failed.data)
        record = UserRecord(failed.data, row_id, time.time(), failed.partition_key, failed.explicit_hash_key)
        shard = Shard(stream_name(stream), self._where.replace(" ", "-"))
        return DeadLetter(shard, record, self._reason(stream, failed)).batch()

    def _reason(self, stream: str, failed: FailedRecord) -> str:
        return (
            f"{self._where}: a row of {len(failed.data)} bytes with the partition key {short_key(failed.partition_key)} was not put into "
            f"{stream}: {failed.error_code}: {failed.error_message}"
        )


def valid_rows(
    rows: pa.RecordBatch, columns: WriteColumns, stream: str | None, field: IdField | None, reject: RejectRow
) -> pa.RecordBatch:
    """Pass each row that cannot become a record to `reject`, and return the other rows.

    - `stream`: the target of the rows if no column names it. A row without data or a target is rejected. If `field` is given, a row whose
      data cannot hold an id is rejected too.
    """
    problems = {
        **_nulls(rows, columns.stream, "stream"),
        **({} if field is None else _without_place_for_id(rows, columns, field)),
        **_nulls(rows, columns.data, "data"),
    }
    if not problems:
        return rows
    for row, problem in sorted(problems.items()):
        target = stream if columns.stream is None else _text(rows, columns.stream, row)
        key = _text(rows, columns.partition_key, row) or ""
        hash_key = _text(rows, columns.explicit_hash_key, row)
        data = payloads_of(rows.slice(row, 1).column(columns.data))[0] or b""
        reject(target or "null", FailedRecord(data, key, hash_key, VALIDATION_EXCEPTION, problem))
    return rows.filter(pa.array([row not in problems for row in range(rows.num_rows)]))


def _nulls(rows: pa.RecordBatch, place: int | None, name: str) -> dict[int, str]:
    if place is None or not rows.column(place).null_count:
        return {}
    missing = rows.column(place).is_null().to_pylist()
    return {row: f"the row has no {name} (null)" for row, is_missing in enumerate(missing) if is_missing}


def _without_place_for_id(rows: pa.RecordBatch, columns: WriteColumns, field: IdField) -> dict[int, str]:
    problems = (
        (row, field.problem_with(data))
        for row, data in enumerate(payloads_of(rows.column(columns.data)))
        if data is not None
    )
    return {row: problem for row, problem in problems if problem is not None}


def _text(rows: pa.RecordBatch, place: int | None, row: int) -> Any:
    return None if place is None else rows.column(place)[row].as_py()
