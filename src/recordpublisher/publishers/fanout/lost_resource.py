"""LostResource: the service did not find something; which of stream, shard and consumer is gone? (F4)"""

from __future__ import annotations

from ..errors import DataLossError, TransientError
from ..kinesis.ports import ListingPort
from ..retry import RetryPolicy, retrying
from ..shards import Shard, is_too_old_for
from .consumer_registrar import Registrar


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
        if not await retrying(lambda: self._is_listed(shard), self._policy):
            raise DataLossError(f"{shard.key} is gone: it is past the stream's retention and was not read to its end")
        return await self._registrar.heal(shard.stream, arn)

    async def _is_listed(self, shard: Shard) -> bool:
        listed = await self._listing.list_shards(shard.stream_arn or shard.stream)
        if is_too_old_for(shard, listed):
            raise TransientError("ListShards", "NotListedYet", f"{shard.key} is not found and not listed yet")
        return any(one.shard_id == shard.shard_id for one in listed)
