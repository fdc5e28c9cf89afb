"""`recordpublisher delete`: the end of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from recordpublisher.publishers.errors import ConfigurationError

from ..execution import call_service
from ..options import StreamName, StreamProperties, with_properties
from ..output import echo

if TYPE_CHECKING:
    from recordpublisher.publishers.kinesis.management import ManagementClient


@with_properties
def delete(
    stream: StreamName,
    properties: StreamProperties,
    yes: Annotated[bool, typer.Option("--yes", help="Delete the stream with all its records.")] = False,
) -> None:
    """Delete a stream with all its records, and print its ARN. Its consumers must be deregistered before.

    Example: recordpublisher delete old-orders --yes
    """

    async def remove(service: ManagementClient) -> str:
        arn = await service.stream_arn(stream)
        if not yes:
            raise ConfigurationError("--yes", None, "--yes", reason=f"it deletes {arn} with all its records")
        await service.delete_stream(arn)
        return arn

    echo(call_service(properties, remove, stream))
