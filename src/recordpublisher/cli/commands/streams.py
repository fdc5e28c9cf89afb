"""The commands that list, describe, create, delete and reshard streams, and those for their consumers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import structs

from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError, ConsumerError
from recordpublisher.publishers.properties.fan_out_properties import CONSUMER_NAME, REGISTRATION
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import DESCRIBE_STREAM_RETRIES
from recordpublisher.publishers.service_limits import DEFAULT_RECORD_BYTES, LARGEST_RECORD_BYTES
from recordpublisher.publishers.shards import Shard, hash_key_from

from ..execution import ask_service, call_service, subcommands
from ..options import StreamName, StreamProperties, Wait, with_properties
from ..output import aligned, echo, joined, json_text, table, time_text
from ..shard_tree import known_shard, shard_tree

if TYPE_CHECKING:
    from recordpublisher.publishers.kinesis.management import ListedStream, ManagementClient, StreamDescription
    from recordpublisher.publishers.kinesis.ports import ConsumerDescription


@with_properties
def list_streams(
    properties: StreamProperties,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line for each stream.")] = False,
) -> None:
    """List the streams of the account in a region.

    Example: recordpublisher list --region eu-west-1
    """
    streams = ask_service(properties, lambda service: service.listed_streams())
    if not as_json:
        echo(streams_table(streams))
        return
    for each in streams:
        echo(json_text({**asdict(each), "created": time_text(each.created)}))


def streams_table(streams: list[ListedStream]) -> str:
    """Return a table with one line for each stream."""
    rows = [(each.name, each.status, each.mode, time_text(each.created)) for each in streams]
    return table(("STREAM", "STATUS", "MODE", "CREATED"), rows)


@with_properties
def describe_stream(
    stream: StreamName,
    properties: StreamProperties,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object; hash keys are text.")] = False,
) -> None:
    """Show a stream: settings, limits, consumers, and its shards as a tree of parents and children.

    The hash range of a shard is followed by its share of all hash keys.

    Example: recordpublisher describe orders
    """
    described = ask_service(properties, lambda service: service.describe(stream), stream)
    echo(json_text(stream_fields(described)) if as_json else stream_text(described))


@with_properties
def create_stream(
    properties: StreamProperties,
    name: Annotated[str, typer.Argument(help="The name of the new stream.", metavar="STREAM")],
    shards: Annotated[int | None, typer.Option(min=1, help="Number of shards, in provisioned mode.")] = None,
    on_demand: Annotated[
        bool, typer.Option("--on-demand", help="On-demand mode: the service decides the number of shards.")
    ] = False,
    max_record_size: Annotated[
        int | None,
        typer.Option(
            metavar="KIB",
            min=DEFAULT_RECORD_BYTES // 1024,
            max=LARGEST_RECORD_BYTES // 1024,
            help="Largest record that the stream accepts, in KiB, including its key; default: 1024 (1 MiB).",
        ),
    ] = None,
    wait: Wait = True,
) -> None:
    """Create a stream, and print its ARN when it is ACTIVE.

    Example: recordpublisher create events --shards 4

    Example: recordpublisher create events --on-demand --no-wait
    """
    if shards is not None and on_demand:
        raise ConfigurationError.conflict("--shards", "--on-demand")
    if shards is None and not on_demand:
        raise ConfigurationError("--shards", None, "a number of shards, or --on-demand instead of it")
    retries = DESCRIBE_STREAM_RETRIES.policy(properties)

    async def make(service: ManagementClient) -> str:
        await service.create_stream(name, shards, max_record_size)
        if wait:
            await service.wait_until_active(name, retries, SystemClock())
        return await service.stream_arn(name)

    echo(call_service(properties, make))


@with_properties
def delete_stream(
    stream: StreamName,
    properties: StreamProperties,
    yes: Annotated[bool, typer.Option("--yes", help="Delete the stream with all its records.")] = False,
) -> None:
    """Delete a stream with all its records, and print its ARN. Deregister its consumers first.

    Example: recordpublisher delete old-orders --yes
    """

    async def remove(service: ManagementClient) -> str:
        arn = await service.stream_arn(stream)
        # The ARN is known by now, so the message says which stream of which account would be deleted.
        if not yes:
            raise ConfigurationError(
                "--yes", None, "--yes", reason=f"the command would delete {arn} with all its records"
            )
        await service.delete_stream(arn)
        return arn

    echo(call_service(properties, remove, stream))


def stream_text(described: StreamDescription) -> str:
    """Return the settings of a stream, each in a line, and the tree of its shards."""
    stream = described.stream
    consumers = ", ".join(f"{each.name} ({each.status})" for each in described.consumers)
    settings = (
        ("stream", stream.name),
        ("ARN", stream.arn),
        ("status", stream.status),
        ("created", time_text(stream.created)),
        ("mode", stream.mode),
        ("limits", _limits(described)),
        ("largest record", f"{described.max_record_bytes // 1024} KiB"),
        ("retention", f"{described.retention_hours} h"),
        ("records to shards", "by partition key" if described.distributes_by_key else "AUTO"),
        ("encryption", "none" if described.encryption_key is None else f"KMS key {described.encryption_key}"),
        ("consumers", consumers or "none"),
        *([("queues", str(described.queues))] if described.queues else []),
        ("shards", f"{described.open_shards} open, {len(described.shards) - described.open_shards} closed"),
    )
    return joined([*aligned(settings), *shard_tree(described.shards)])


def _limits(described: StreamDescription) -> str:
    """Return in words how much all open shards together accept and return.

    By the limits of the service, a shard accepts 1,000 records and 1 MiB a second, and returns 2 MiB a second.
    """
    if described.stream.mode == "ON_DEMAND":
        return "the service changes the number of shards with the load"
    shards = described.open_shards
    return (
        f"{shards * 1000:,} records/s and {shards} MiB/s in; {shards * 2} MiB/s out by polling, "
        "and as much for each consumer"
    )


def stream_fields(described: StreamDescription) -> dict[str, Any]:
    """Return the settings and the shards of a stream as fields for JSON."""
    stream = described.stream
    return {
        **asdict(stream),
        "created": time_text(stream.created),
        "open_shards": described.open_shards,
        "retention_hours": described.retention_hours,
        "max_record_bytes": described.max_record_bytes,
        "distributes_by_key": described.distributes_by_key,
        "encryption_key": described.encryption_key,
        "queues": described.queues,
        "consumers": [structs.asdict(each) for each in described.consumers],
        "shards": [
            {
                "shardId": shard.shard_id,
                "parents": shard.parents,
                "closed": shard.closed,
                "startingHashKey": str(shard.hash_range.start),
                "endingHashKey": str(shard.hash_range.end),
            }
            for shard in described.shards
        ],
    }


@with_properties
def split_shard(
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
def merge_shards(
    stream: StreamName,
    properties: StreamProperties,
    shard_id: Annotated[str, typer.Argument(help="An open shard.", metavar="SHARD")],
    other_id: Annotated[
        str, typer.Argument(help="The open shard before or after the first one, by hash keys.", metavar="OTHER-SHARD")
    ],
    wait: Wait = True,
) -> None:
    """Merge two shards with adjacent hash ranges, and print the id of their child when the stream is ACTIVE again.

    Example: recordpublisher merge orders shardId-000000000000 shardId-000000000001
    """

    async def change(service: ManagementClient) -> list[str]:
        listed = await service.list_shards(stream)
        pair = sorted((_open_shard(one, listed) for one in (shard_id, other_id)), key=lambda one: one.hash_range.start)
        # The service would refuse other pairs too, with a message that does not name the right shard.
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
    """Wait until the stream is ACTIVE, and return the ids of the children of `parents`. Return no ids at once if `wait` is false."""
    if not wait:
        return []
    await service.wait_until_active(stream, DESCRIBE_STREAM_RETRIES.policy(properties), SystemClock())
    ids = {parent.shard_id for parent in parents}
    return [shard.shard_id for shard in await service.list_shards(stream) if ids & {*shard.parents}]


consumers = subcommands(
    "List, register and deregister the consumers of enhanced fan-out.\n\nExample: recordpublisher consumers list orders"
)
Name = Annotated[str, typer.Argument(help="The consumer's name.", metavar="NAME")]


@consumers.command("list")
@with_properties
def list_consumers(
    stream: StreamName,
    properties: StreamProperties,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line for each consumer.")] = False,
) -> None:
    """List the consumers that are registered with a stream.

    Example: recordpublisher consumers list orders
    """

    async def ask(service: ManagementClient) -> list[ConsumerDescription]:
        return await service.list_consumers(await service.stream_arn(stream))

    found = ask_service(properties, ask, stream)
    if not as_json:
        echo(table(("CONSUMER", "STATUS", "ARN"), [(each.name, each.status, each.arn) for each in found]))
        return
    for each in found:
        echo(json_text(structs.asdict(each)))


@consumers.command("register")
@with_properties
def register_consumer(
    stream: StreamName,
    properties: StreamProperties,
    name: Name,
) -> None:
    """Register a consumer if it is not registered, and print its ARN when it is ACTIVE. AWS charges for it until it is deregistered.

    Example: recordpublisher consumers register orders billing
    """

    async def change(service: ManagementClient) -> str:
        # Imported here because they load the AWS SDK, which other commands do not need.
        from recordpublisher.publishers.fanout.config import FanOutConfig
        from recordpublisher.publishers.fanout.registration import RegistrationCalls

        config = FanOutConfig.of(properties.merged({CONSUMER_NAME.key: name, REGISTRATION.key: "LAZY"}))
        calls = RegistrationCalls(service, config, SystemClock())
        return await calls.ensure_active(await calls.stream_arn(stream), name, lambda: True)

    echo(call_service(properties, change, stream))


@consumers.command("deregister")
@with_properties
def deregister_consumer(
    stream: StreamName,
    properties: StreamProperties,
    name: Name,
) -> None:
    """Deregister a consumer. Jobs that read with it can no longer read.

    Example: recordpublisher consumers deregister orders billing
    """

    async def change(service: ManagementClient) -> None:
        registered = {each.name: each.arn for each in await service.list_consumers(await service.stream_arn(stream))}
        if name not in registered:
            raise ConsumerError(f"{stream} has no consumer '{name}'; its consumers: {', '.join(registered) or 'none'}")
        await service.deregister_consumer(registered[name])

    call_service(properties, change, stream)
