"""ShardObservation: what one read observed of a shard, in addition to its records.

Silence: what several reads observed of its silence (W3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from recordpublisher.publishers.shards import Shard, shard_from_json, shard_to_json

from ..stored_documents import check_document


class ShardObservation(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The observations of one read of a shard. Times are epoch ms.

    - `at_tip`: whether the last read was at the tip, and all records were emitted.
    - `tip_seen_ms`: when the first and the last response at the tip arrived.
    - `past_event_time`: whether the next record is above the bound `until_event_time`. `next_watermark` is its
      watermark (W1).
    - `silent_ms`: how long the read observed the shard silent (W3).
    - `behind_ms`: MillisBehindLatest of the last response; None without a response, or if the service does not tell.
    - `children`: the children that the ended shard named.
    - `failure`: the error of the last call, if the read ended while the call was retried.
    - `taken_over`, `refused`: subscriptions that another caller took over, and calls refused because the consumer is in
      use (F10).
    """

    at_tip: bool = False
    tip_seen_ms: tuple[int, int] | None = None
    past_event_time: bool = False
    next_watermark: int | None = None
    silent_ms: int = 0
    behind_ms: int | None = msgspec.field(name="millisBehindLatest", default=None)
    children: tuple[Shard, ...] = ()
    failure: str | None = None
    taken_over: int = 0
    refused: int = 0

    def had_response(self, records: int) -> bool:
        """Return whether the service responded to any request of this read, which returned `records` records."""
        return records > 0 or self.behind_ms is not None

    def to_json(self) -> dict[str, Any]:
        """Return a plain dict, without the fields that have their default."""
        entries: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self, children=()))
        return {**entries, "children": [*map(shard_to_json, self.children)]} if self.children else entries

    @classmethod
    def from_json(cls, entries: Mapping[str, Any]) -> ShardObservation:
        """Return the observation that `to_json` has written.

        Raises: StateError if a field does not fit; KeyError or ValueError if a child is malformed.
        """
        children = tuple(map(shard_from_json, entries.get("children", ())))
        seen = check_document({**entries, "children": ()}, cls, "what was seen of a shard")
        return msgspec.structs.replace(seen, children=children)


class Silence(msgspec.Struct, frozen=True):
    """How long (ms) a shard that is read in several runs was observed silent, up to the last response at the tip, at `tip_ms`.

    `tip_ms` is None after a read that ended before the tip.
    """

    ms: int = 0
    tip_ms: int | None = None

    def after(self, seen: ShardObservation, records: int) -> Silence:
        """Return the silence after one more read (W3).

        Within a read the fetcher's own observation counts (`IdlenessTimer`). Between two reads this differs from the
        fetcher. The fetcher counts at most a few seconds between two responses, because a response may be older than
        its arrival. Here the later read starts at the position where the earlier one ended: if both were at the tip,
        nothing arrived between them, however long that was.

        A read without any response changes nothing (fan-out may send its first event only after 5 s). Records, or a
        read that ended before the tip, reset the silence.
        """
        if not seen.had_response(records):
            return self
        first_ms, last_ms = seen.tip_seen_ms or (0, None)
        tip_ms = last_ms if seen.at_tip else None
        if records or seen.past_event_time or not seen.at_tip:
            return Silence(0, tip_ms)
        between = 0 if self.tip_ms is None else max(0, first_ms - self.tip_ms)
        return Silence(self.ms + between + seen.silent_ms, tip_ms)
