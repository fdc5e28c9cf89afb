"""`recordpublisher create`: a new stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.reading import DESCRIBE_STREAM_RETRIES
from recordpublisher.publishers.service_limits import DEFAULT_RECORD_BYTES, LARGEST_RECORD_BYTES

from ..execution import call_service
from ..options import StreamProperties, Wait, with_properties
from ..output import echo

if TYPE_CHECKING:
    from recordpublisher.publishers.kinesis.management import ManagementClient


@with_properties
def create(
    properties: StreamProperties,
    name: Annotated[str, typer.Argument(help="The name of the new stream.", metavar="STREAM")],
    shards: Annotated[int | None, typer.Option(min=1, help="Number of shards, in provisioned mode.")] = None,
    on_demand: Annotated[
        bool, typer.Option("--on-demand", help="On-demand mode: the service decides how many shards.")
    ] = False,
    max_record_size: Annotated[
        int | None,
        typer.Option(
            metavar="KIB",
            min=DEFAULT_RECORD_BYTES // 1024,
            max=LARGEST_RECORD_BYTES // 1024,
            help="The largest record that the stream takes, in KiB, its key counted; default: 1024 (1 MiB).",
        ),
    ] = None,
    wait: Wait = True,
) -> None:
    """Create a stream, and print its ARN when it is ACTIVE.

    Example: recordpublisher create events --shards 4

    Example: recordpublisher create events --on-demand --no-wait
    """
    if (shards is not None) == on_demand:
        raise ConfigurationError("--shards", shards, "a number of shards, or --on-demand in its place")
    retries = DESCRIBE_STREAM_RETRIES.policy(properties)

    async def make(service: ManagementClient) -> str:
        await service.create_stream(name, shards, max_record_size)
        if wait:
            await service.wait_until_active(name, retries, SystemClock())
        return await service.stream_arn(name)

    echo(call_service(properties, make))
