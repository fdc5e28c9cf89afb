"""`recordpublisher split` and `recordpublisher merge`: other shards for a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.reading import DESCRIBE_STREAM_RETRIES
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard, hash_key_from

from ..execution import call_service
from ..options import StreamName, StreamProperties, Wait, with_properties
from ..output import echo
from ..shard_tree import known_shard

if TYPE_CHECKING:
    from recordpublisher.publishers.kinesis.management import ManagementClient


@with_properties
def split(
    stream: StreamName,
    properties: StreamProperties,
    shard_id: Annotated[str, typer.Argument(help="An open shard.", metavar="SHARD")],
    at: Annotated[
        str | None,
        typer.Option(metavar="HASHKEY", help="Where the second child begins; default: the middle of the hash range."),
    ] = None,
    wait: Wait = True,
) -> None:
    """Split a shard in two, and print the ids of its children when the stream is ACTIVE again.

    Example: recordpublisher split orders shardId-000000000000
    """
    hash_key = None if at is None else hash_key_from(at)
    if at is not None and hash_key is None:
        raise ConfigurationError("--at", at, "a decimal number from 0 to 2^128 - 1")

    async def change(service: ManagementClient) -> list[str]:
        shard = _open_shard(shard_id, await service.list_shards(stream))
        keys = shard.hash_range
        if hash_key is not None and not keys.start < hash_key <= keys.end:
            raise ConfigurationError(
                "--at", at, f"a hash key of {shard_id} after its first: {keys.start + 1} to {keys.end}"
            )
        await service.split_shard(shard, keys.middle + 1 if hash_key is None else hash_key)
        return await _children(service, stream, [shard], wait, properties)

    for child in call_service(properties, change, stream):
        echo(child)


@with_properties
def merge(
    stream: StreamName,
    properties: StreamProperties,
    shard_id: Annotated[str, typer.Argument(help="An open shard.", metavar="SHARD")],
    other_id: Annotated[
        str, typer.Argument(help="The open shard before or after it, by hash keys.", metavar="OTHER-SHARD")
    ],
    wait: Wait = True,
) -> None:
    """Merge two shards with adjacent hash ranges, and print the id of their child when the stream is ACTIVE again.

    Example: recordpublisher merge orders shardId-000000000000 shardId-000000000001
    """

    async def change(service: ManagementClient) -> list[str]:
        listed = await service.list_shards(stream)
        pair = sorted((_open_shard(one, listed) for one in (shard_id, other_id)), key=lambda one: one.hash_range.start)
        if pair[0].hash_range.end + 1 != pair[1].hash_range.start:
            raise ConfigurationError("shard", other_id, f"the open shard before or after {shard_id} by hash keys")
        await service.merge_shards(*pair)
        return await _children(service, stream, pair, wait, properties)

    for child in call_service(properties, change, stream):
        echo(child)


def _open_shard(shard_id: str, listed: Sequence[Shard]) -> Shard:
    return known_shard(shard_id, [each for each in listed if not each.closed], "shard", "an open shard of the stream")


async def _children(
    service: ManagementClient, stream: str, parents: Sequence[Shard], wait: bool, properties: Properties
) -> list[str]:
    """Return the ids of the new shards, once the stream is active; none if the command does not wait."""
    if not wait:
        return []
    await service.wait_until_active(stream, DESCRIBE_STREAM_RETRIES.policy(properties), SystemClock())
    ids = {parent.shard_id for parent in parents}
    return [shard.shard_id for shard in await service.list_shards(stream) if ids & {*shard.parents}]
