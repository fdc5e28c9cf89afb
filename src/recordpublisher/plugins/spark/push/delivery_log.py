"""DeliveryLog: the file in which SparkSink records the rows of a batch, before and after their delivery."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from recordpublisher.fetcher.sink import State
from recordpublisher.plugins.stores.durable_files import replace_file
from recordpublisher.publishers.errors import StateError

RowRange = tuple[int, str, int, str, int]
"""The rows of one shard in one batch: their number; sequence and sub-sequence number of the first and of the last."""


@dataclass(frozen=True, slots=True)
class DeliveryLog:
    """The content of the file.

    - `state`: a snapshot of the fetcher.
    - `delivered`: how many rows of each shard after that snapshot were in the batches before `batch`.
    - `pending`: the rows of batch `batch`, once its delivery has begun.
    """

    state: State
    batch: int = 0
    delivered: Mapping[str, int] = field(default_factory=dict)
    pending: Mapping[str, RowRange] = field(default_factory=dict)

    def after_delivery(self) -> DeliveryLog:
        """The log once the pending batch is delivered."""
        keys = self.delivered.keys() | self.pending.keys()
        counts = {key: self.delivered.get(key, 0) + self.pending.get(key, (0,))[0] for key in sorted(keys)}
        return DeliveryLog(self.state, self.batch + 1, counts)

    def write(self, path: Path) -> None:
        """Replace the file atomically."""
        replace_file(path, json.dumps(asdict(self)).encode())

    @classmethod
    def read(cls, path: Path) -> DeliveryLog | None:
        """The content of the file; None when there is no file. Raises: StateError when it cannot be read."""
        try:
            plain = json.loads(path.read_text())
            return cls(plain["state"], plain["batch"], plain["delivered"], _ranges(plain["pending"].items()))
        except FileNotFoundError:
            return None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateError(f"{path} is not the state of a SparkSink: {error}") from error


def _ranges(entries: Iterable[tuple[str, Any]]) -> dict[str, RowRange]:
    return {key: (entry[0], entry[1], entry[2], entry[3], entry[4]) for key, entry in entries}
