"""LostResource: the service did not find something; which of stream, shard and consumer is gone? (F4)"""

from __future__ import annotations

from ..backoff import RetryPolicy, retrying
from ..errors import DataLossError
from ..shards import Shard
from ..wire import ListingPort
from .registrar import Registrar


class LostResource:
    """Looks closer at a ResourceNotFoundException. A shard is never taken as ended because something was not found."""

    def __init__(self, registrar: Registrar, listing: ListingPort, policy: RetryPolicy) -> None:
        self._registrar = registrar
        self._listing = listing
        self._policy = policy

    async def heal(self, shard: Shard, arn: str) -> bool:
        """True when the consumer was gone and there is another one now, False when stream, shard and consumer are all there.

        Raises: StreamNotFoundError, DataLossError when the shard is no longer listed, ConsumerError when nobody may register.
        """
        if self._registrar.arn(shard.stream) != arn:  # another shard was faster
            return True
        stream = shard.stream_arn or shard.stream
        shards = await retrying(lambda: self._listing.list_shards(stream), self._policy)
        if all(listed.shard_id != shard.shard_id for listed in shards):
            raise DataLossError(f"{shard.key} is gone: it is past the stream's retention and was not read to its end")
        return await self._registrar.heal(shard.stream, arn)
