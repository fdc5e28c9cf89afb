"""`recordpublisher local`: the embedded endpoint."""

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from recordpublisher.publishers.errors import ConfigurationError

from ..execution import errors_naming_options, print_note, run_until_signal
from ..options import Port


class Limits(StrEnum):
    """The rate limits that the endpoint enforces."""

    NONE = "none"
    SERVICE = "service"


def local(
    port: Port = 4567,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    stream: Annotated[
        list[str] | None, typer.Option(metavar="NAME:SHARDS", help="A stream to create at the start; may be repeated.")
    ] = None,
    faults: Annotated[
        str,
        typer.Option(
            metavar="RULES",
            help="Random faults: KIND[@WHERE][=RATE][*COUNT][~SECONDS], separated by commas; "
            "all=0.02 means every kind, for one call in fifty. The reference of the embedded endpoint lists the kinds.",
        ),
    ] = "",
    seed: Annotated[int, typer.Option(help="Seed of the random faults.")] = 0,
    http2: Annotated[
        bool, typer.Option("--http2", help="Serve HTTP/2 in addition, which async clients in Java need (extra local).")
    ] = False,
    tls: Annotated[
        bool,
        typer.Option("--tls", help="Serve HTTPS with a new certificate, whose file is printed (extra local)."),
    ] = False,
    limits: Annotated[
        Limits, typer.Option(help="Rate limits of each shard: none, or those that the service documents.")
    ] = Limits.NONE,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Keep streams, records, consumers and tags in this folder, so that they survive a restart.",
        ),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Put numbered records, and play faults and reshards at their times, from a TOML file or a ready schedule: "
            "everything, outage, reshards. `recordpublisher judge` shows how your consumer did.",
        ),
    ] = None,
    allow_remote: Annotated[
        bool,
        typer.Option(
            help="Allow a --host that other machines can reach. Anyone can connect: there is no authentication."
        ),
    ] = False,
) -> None:
    """Serve an embedded Kinesis endpoint from memory, or with --data from a folder, until the command is stopped.

    Example: recordpublisher local --port 0 --stream orders:4
    """
    from recordpublisher.local import Quotas
    from recordpublisher.local.faults import parse_rules

    options = {
        "allow_remote": allow_remote,
        "faults": parse_rules(faults, "--faults"),
        "seed": seed,
        "http2": http2,
        "tls": tls,
        "data": data,
        "quotas": Quotas.service() if limits is Limits.SERVICE else None,
    }
    with errors_naming_options("port", "host", "data"):
        run_until_signal(_serve(host, port, shards_by_stream(stream or []), options, schedule))


async def _serve(host: str, port: int, streams: dict[str, int], options: dict[str, Any], schedule: str | None) -> None:
    from recordpublisher.local import LocalKinesis
    from recordpublisher.local.schedules.schedule import Player, load_schedule

    plan = None if schedule is None else load_schedule(schedule)

    async with LocalKinesis(host, port, streams, **options) as endpoint:
        if endpoint.certificate_file is not None:
            print_note(f"clients trust the certificate of the endpoint with AWS_CA_BUNDLE={endpoint.certificate_file}")
        print_note(f"the embedded Kinesis endpoint listens at {endpoint.url}")
        try:
            if plan is not None:
                await Player(endpoint, plan, print_note).play()
                print_note("the schedule is over; the endpoint continues to serve")
            await asyncio.Event().wait()
        finally:
            counts = endpoint.faults.counts
            if options["faults"]:
                print_note("faults: " + (", ".join(f"{kind} {counts[kind]}" for kind in sorted(counts)) or "none"))


def shards_by_stream(given: list[str]) -> dict[str, int]:
    """Return the shards of each stream: `{"orders": 4}` for `["orders:4"]`.

    Raises: ConfigurationError if an item is malformed, has no shard, or repeats a stream.
    """
    streams: dict[str, int] = {}
    for pair in given:
        name, _, count = pair.rpartition(":")
        if not name or not count.isdecimal() or int(count) < 1 or name in streams:
            raise ConfigurationError(
                "--stream", pair, "NAME:SHARDS with at least one shard, each name once, for example orders:4"
            )
        streams[name] = int(count)
    return streams
