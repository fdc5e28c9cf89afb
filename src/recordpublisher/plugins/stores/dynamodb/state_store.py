"""DynamoDbStateStore: checkpoints as items that only their generation may change (S6)."""

from __future__ import annotations

import asyncio
import json
import random

from recordpublisher.fetcher.checkpoints.store import StateStore
from recordpublisher.fetcher.sink import State
from recordpublisher.publishers.errors import FencedError, StateError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import STATE_URI

from ..aws_client import RefusedError
from .table import DynamoTable

_TRIES = 10


class DynamoDbStateStore(StateStore):
    """One item for each subtask: generation, number of the checkpoint, snapshot. One table may serve many jobs (`dynamodb://table/job`).

    Every write is conditional: a store wants its own generation and an older checkpoint, so that neither a replaced process nor a
    delayed retry of the SDK can bring back an older position. An item holds 400 KB, enough for more than a thousand shards a subtask.
    """

    def __init__(self, properties: Properties) -> None:
        """Raises: ConfigurationError when `flink.state.uri` is not dynamodb://table/job."""
        self._table = DynamoTable(properties.value(STATE_URI) or "", STATE_URI.key, properties)
        self._checkpoints: dict[int, int] = {}

    async def load(self) -> list[State]:
        """Every subtask's snapshot. Raises: StateError naming the item that cannot be read."""
        items = [item async for item in self._table.items()]
        return [self._decoded(item["item"]["S"], item["content"]["S"]) for item in items if "content" in item]

    async def open_generation(self, subtask: int) -> int:
        """The next number; later stores of this subtask's earlier starts raise FencedError."""
        for attempt in range(_TRIES):
            known = {item["item"]["S"]: int(item["generation"]["N"]) async for item in self._table.items()}
            generation = max(known.values(), default=0) + 1
            seen = known.get(_name(subtask))
            condition = "attribute_not_exists(generation)" if seen is None else "generation = :seen"
            values = {":new": {"N": str(generation)}, ":none": {"N": "0"}}
            values |= {} if seen is None else {":seen": {"N": str(seen)}}
            try:
                change = "SET generation = :new, checkpoint = :none"
                await self._table.update(_name(subtask), change, condition, values)
            except RefusedError:
                await asyncio.sleep(random.random() * 0.1 * 2**attempt)  # noqa: S311 - jitter
            else:
                self._checkpoints[subtask] = 0
                return generation
        raise StateError(f"{self._place(subtask)} is opened by others again and again")

    async def store(self, subtask: int, generation: int, state: State) -> None:
        """Replace the subtask's snapshot. Raises: FencedError when a later start of the subtask owns it."""
        number = self._checkpoints[subtask] = self._checkpoints.get(subtask, 0) + 1
        values = {
            ":mine": {"N": str(generation)},
            ":number": {"N": str(number)},
            ":content": {"S": json.dumps(dict(state))},
        }
        try:
            await self._table.update(
                _name(subtask),
                "SET checkpoint = :number, content = :content",
                "generation = :mine AND checkpoint < :number",
                values,
            )
        except RefusedError:
            await self._check_owner(subtask, generation)  # still ours: a retry of the SDK met its own first try

    async def close(self) -> None:
        """Close the client."""
        await self._table.service.close()

    async def _check_owner(self, subtask: int, generation: int) -> None:
        item = await self._table.get(_name(subtask))
        owner = None if item is None else int(item["generation"]["N"])
        if owner != generation:
            raise FencedError(f"generation {owner} owns {self._place(subtask)}; generation {generation} must stop")

    def _decoded(self, item: str, snapshot: str) -> State:
        try:
            content = json.loads(snapshot)
        except ValueError as error:
            raise StateError(f"the stored state {self._table.service.place}: {item} cannot be read: {error}") from error
        if not isinstance(content, dict):
            raise StateError(f"the stored state {self._table.service.place}: {item} is not a JSON object")
        return content

    def _place(self, subtask: int) -> str:
        return f"{self._table.service.place}: {_name(subtask)}"


def _name(subtask: int) -> str:
    return f"subtask-{subtask}"
