"""A shard that a command names, among those of the stream."""

from __future__ import annotations

from collections.abc import Sequence

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.shards import Shard

SHOWN_SHARDS = 10


def known_shard(shard_id: str, shards: Sequence[Shard], key: str, valid: str) -> Shard:
    """The shard with this id. Raises: ConfigurationError that names some of `shards`; `key` and `valid` are its words."""
    found = {shard.shard_id: shard for shard in shards}
    if shard_id not in found:
        others = ", ".join([*found][:SHOWN_SHARDS]) + ", ..." * (len(found) > SHOWN_SHARDS)
        raise ConfigurationError(key, shard_id, f"{valid}: {others}")
    return found[shard_id]
