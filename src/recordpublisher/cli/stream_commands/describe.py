"""`recordpublisher describe`: the settings, limits, consumers and shards of a stream."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import structs

from ..execution import ask_service
from ..options import StreamName, StreamProperties, with_properties
from ..output import aligned, echo, joined, json_text, time_text
from ..shard_tree import shard_tree

if TYPE_CHECKING:
    from recordpublisher.publishers.kinesis.management import StreamDescription


@with_properties
def describe(
    stream: StreamName,
    properties: StreamProperties,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object; hash keys are text.")] = False,
) -> None:
    """Show a stream: settings, limits, consumers, and its shards as a tree of parents and children.

    The hash range of a shard is followed by its share of all hash keys.

    Example: recordpublisher describe orders
    """
    described = ask_service(properties, lambda service: service.describe(stream), stream)
    echo(json_text(as_fields(described)) if as_json else as_text(described))


def as_text(described: StreamDescription) -> str:
    """Return the settings, one a line, and the tree of shards."""
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
    """Return the limits of the open shards: each takes 1,000 records and 1 MiB a second, and gives 2 MiB a second (service limits)."""
    if described.stream.mode == "ON_DEMAND":
        return "the service changes the number of shards with the load"
    shards = described.open_shards
    return (
        f"{shards * 1000:,} records/s and {shards} MiB/s in; {shards * 2} MiB/s out by polling, "
        "and as much for each consumer"
    )


def as_fields(described: StreamDescription) -> dict[str, Any]:
    """Return the settings and the shards as fields for JSON."""
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
