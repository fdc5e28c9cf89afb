"""`recordpublisher consumers`: the consumers of enhanced fan-out that are registered with a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import asdict

from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConsumerError
from recordpublisher.publishers.properties.groups.reading import CONSUMER_NAME, REGISTRATION

from ..execution import ask_service, call_service, subcommands
from ..options import StreamName, StreamProperties, with_properties
from ..output import echo, json_text, table

if TYPE_CHECKING:
    from recordpublisher.publishers.kinesis.management import ManagementClient
    from recordpublisher.publishers.kinesis.ports import ConsumerDescription

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
        echo(json_text(asdict(each)))


@consumers.command("register")
@with_properties
def register(
    stream: StreamName,
    properties: StreamProperties,
    name: Name,
) -> None:
    """Register a consumer, unless it is, and print its ARN when it is ACTIVE. AWS charges for it until it is deregistered.

    Example: recordpublisher consumers register orders billing
    """

    async def change(service: ManagementClient) -> str:
        # imported here, since it imports the AWS SDK, which other commands do without
        from recordpublisher.publishers.fanout.config import FanOutConfig
        from recordpublisher.publishers.fanout.registration import RegistrationCalls

        config = FanOutConfig.of(properties.merged({CONSUMER_NAME.key: name, REGISTRATION.key: "LAZY"}))
        calls = RegistrationCalls(service, config, SystemClock())
        return await calls.ensure_active(await calls.stream_arn(stream), name, lambda: True)

    echo(call_service(properties, change, stream))


@consumers.command("deregister")
@with_properties
def deregister(
    stream: StreamName,
    properties: StreamProperties,
    name: Name,
) -> None:
    """Deregister a consumer. Jobs that read with it lose it.

    Example: recordpublisher consumers deregister orders billing
    """

    async def change(service: ManagementClient) -> None:
        registered = {each.name: each.arn for each in await service.list_consumers(await service.stream_arn(stream))}
        if name not in registered:
            raise ConsumerError(f"{stream} has no consumer '{name}'; its consumers: {', '.join(registered) or 'none'}")
        await service.deregister_consumer(registered[name])

    call_service(properties, change, stream)
