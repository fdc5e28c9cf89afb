"""Children that came and went while nobody read: a gap that no position tells of (S5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recordpublisher.publishers.shards import Shard

from ..shards.shard_state import ShardState
from .snapshot import Restored


def with_unread_children(
    listed: Sequence[Shard], restored: Restored, oldest_retained_ms: Mapping[str, int | None]
) -> list[str]:
    """Restored shards that were read to their end and whose children nobody knows.

    Nobody lists such a shard any more, and everything that the state says of its stream is older than what is retained. A younger
    state may only have dropped the children before it dropped their parent.
    """
    known = {shard.key for shard in listed}
    known |= {f"{shard.stream}/{parent}" for shard in listed for parent in shard.parents}
    known |= {f"{_stream_of(key)}/{parent}" for key, state in restored.shards.items() for parent in state.parents}
    traces: dict[str, int] = {}
    for key, state in restored.shards.items():
        traces[_stream_of(key)] = max(traces.get(_stream_of(key), 0), _last_trace_ms(state))
    old = {stream for stream, trace in traces.items() if 0 < trace < (oldest_retained_ms.get(stream) or 0)}
    return [
        key for key, state in restored.shards.items() if state.ended and key not in known and _stream_of(key) in old
    ]


def _last_trace_ms(state: ShardState) -> int:
    """When something was last seen of a shard: its last record's arrival, or its tip; 0 when nothing was."""
    return max(state.arrival_ms or 0, state.tip_ms or 0)


def _stream_of(key: str) -> str:
    return key.rsplit("/", 1)[0]
