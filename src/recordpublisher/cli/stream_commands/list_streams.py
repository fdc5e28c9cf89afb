"""`recordpublisher list`: the streams of the account in a region."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ..execution import ask_service
from ..options import StreamProperties, with_properties
from ..output import echo, json_text, table, time_text

if TYPE_CHECKING:
    from recordpublisher.publishers.kinesis.management import ListedStream


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
        echo(as_table(streams))
        return
    for each in streams:
        echo(json_text({**asdict(each), "created": time_text(each.created)}))


def as_table(streams: list[ListedStream]) -> str:
    """Return a table with one line for each stream."""
    rows = [(each.name, each.status, each.mode, time_text(each.created)) for each in streams]
    return table(("STREAM", "STATUS", "MODE", "CREATED"), rows)
