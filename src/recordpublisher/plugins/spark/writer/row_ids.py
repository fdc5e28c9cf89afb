"""Makes ids of rows: a row that is put again has the same id, and any two rows of a batch have different ids.

Consumers drop repeated rows by their ids.
"""

import json
from collections.abc import Callable
from hashlib import blake2b

import msgspec

from recordpublisher.publishers.errors import SinkError
from recordpublisher.publishers.undecodable import UNDECODABLE

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties that Spark sets for the tasks of a streaming query, including those of foreachBatch."""
EXECUTION, ROOT_EXECUTION = "spark.sql.execution.id", "spark.sql.execution.root.id"
"""Local properties with the number of a task's action, and of the batch's action, which contains it. Equal if the query itself writes."""
ID_BYTES = 16
MOST_TEXTS = 10_000
"""Number of streams and keys whose text is kept. Formatting it costs a third of the time of an id."""


def scope_of(local_property: Callable[[str], str | None], run: str, task: int) -> str:
    """Return a prefix for the ids of one task's rows.

    It has query, batch, the action's number within its batch, and task; outside a query it has run and task. A batch that runs again has
    the same actions. If their number is not known, the run distinguishes two writes of one batch.
    """
    query, batch = local_property(QUERY), local_property(BATCH)
    if query is None or batch is None:
        return f"{run}/{task}"
    action, root = local_property(EXECUTION), local_property(ROOT_EXECUTION)
    write = run if action is None or root is None else int(action) - int(root)
    return f"{query}/{batch}/{write}/{task}"


class RowIds:
    """Makes the ids of one task's rows from scope and content. Equal rows are counted.

    The ids do not depend on the order of the rows, which may differ between attempts. Uses about 80 B for each row while the task runs.
    """

    def __init__(self, scope: str) -> None:
        self._start = blake2b(digest_size=ID_BYTES, key=blake2b(scope.encode()).digest())
        self._texts: dict[tuple[str | None, ...], bytes] = {}
        self._seen: set[int] = set()
        self._equal: dict[int, int] = {}

    def id_of(self, stream: str, partition_key: str | None, explicit_hash_key: str | None, data: bytes) -> str:
        """Return an id of 32 hexadecimal digits."""
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
        """Return stream and keys as they are hashed. The text is kept, because many rows have the same."""
        if len(self._texts) >= MOST_TEXTS:
            self._texts.clear()
        self._texts[named] = text = "".join([f" {name!r}" for name in named]).encode()
        return text


class IdField:
    """The field of a JSON object that holds the id. Only rows that contain the name are parsed; other rows are only checked for braces."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._quoted = json.dumps(name, ensure_ascii=False).encode()
        self._begin = b"{" + self._quoted + b':"'

    def insert_id(self, data: bytes, row_id: str) -> bytes:
        """Return the object with the id as its first field. Raises: SinkError if the data is not an object, or already has the field."""
        problem = self.problem_with(data)
        if problem is not None:
            raise SinkError(problem)
        rest = data.strip()[1:].lstrip()
        return self._begin + row_id.encode() + (b'"' if rest == b"}" else b'",') + rest

    def problem_with(self, data: bytes) -> str | None:
        """Return why the data cannot hold the id, or None if it can."""
        text = data.strip()
        if not (text.startswith(b"{") and text.endswith(b"}")):
            return f"idField adds '{self._name}' to a JSON object, and the data of a row is {_shown(data)}"
        if self._quoted in text and self._has_field(text):
            return f"idField is '{self._name}', and the data of a row has that field: {_shown(data)}"
        return None

    def _has_field(self, text: bytes) -> bool:
        try:
            return self._name in msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        except UNDECODABLE:
            return True


def _shown(data: bytes) -> str:
    return f"{data[:60]!r}{'...' if len(data) > 60 else ''} ({len(data)} bytes)"
