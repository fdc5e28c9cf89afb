"""`recordpublisher doctor`: what will fail, before a job starts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError, PluginError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import (
    CONSUMER_ARN,
    CONSUMER_NAME,
    RECORD_PUBLISHER,
    REGISTRATION,
    SINK,
    SINK_STREAM,
)
from recordpublisher.publishers.stream_arns import stream_name

from ..execution import FAILED, run_until_signal
from ..log_format import LogFormat, LogFormatOption
from ..options import Endpoint, Pairs, Profile, Region, read_properties, search_current_folder
from ..output import aligned, styled
from ..verbosity import Debug, Verbose

if TYPE_CHECKING:
    from ..doctor.findings import Finding
    from ..doctor.streams import Use


def doctor(
    job: Annotated[Path | None, typer.Argument(metavar="JOB.properties", help="The job's properties.")] = None,
    streams: Annotated[
        list[str] | None,
        typer.Option(
            "--stream", metavar="NAME", help="Without a job: this stream, to read and to write; may be repeated."
        ),
    ] = None,
    pairs: Pairs = None,
    region: Region = None,
    endpoint: Endpoint = None,
    profile: Profile = None,
    verbose: Verbose = False,
    debug: Debug = False,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Say what will fail, before a job starts: one line for each check, ok or what to do. Nothing is changed.

    Checks properties, plugins, versions, region, CA file, proxy, DNS and the connection; for each stream the clock, distribution,
    settings, consumers and each IAM action that the job needs; for a job its store, its sink, the size of records that it copies, and
    the time until unread records are lost. Exits with 1 when there is a problem.

    Example: recordpublisher doctor --stream orders

    Example: recordpublisher doctor job.properties
    """
    from recordpublisher.plugins.runtime.jobs.subtask import streams_of  # brings the AWS SDK

    if (job is None) != bool(streams):
        raise ConfigurationError("--stream", streams and streams[0], "either a job's properties, or --stream")
    search_current_folder()  # as `run` does, for the functions that the properties name
    properties = read_properties(job, pairs, region, endpoint, profile)
    uses = {each: _use(properties, each, writes=job is None) for each in streams or streams_of(properties)}
    findings = run_until_signal(_find(properties, uses, has_job=job is not None)) or []
    colours = {"ok": "green", "PROBLEM": "red", "not checked": "yellow"}
    lines = aligned([(each.verdict.value, each.name, each.words) for each in findings]).split("\n")
    for each, line in zip(findings, lines, strict=True):
        verdict = each.verdict.value
        typer.echo(styled(verdict, colours[verdict]) + line.removeprefix(verdict))
    if any(each.verdict.value == "PROBLEM" for each in findings):
        raise typer.Exit(FAILED)


def _use(properties: Properties, stream: str, writes: bool) -> Use:
    from ..doctor.streams import Use

    if properties.value(RECORD_PUBLISHER) != "EFO":
        return Use(writes=writes)
    arns = properties.with_prefix(CONSUMER_ARN) if properties.value(REGISTRATION) == "NONE" else {}
    return Use(
        consumer=properties.value(CONSUMER_NAME) or "", consumer_arn=arns.get(stream_name(stream)), writes=writes
    )


async def _find(properties: Properties, uses: dict[str, Use], has_job: bool) -> list[Finding]:
    from recordpublisher.plugins.host.manager import load_registry
    from recordpublisher.publishers.kinesis.management.client import ManagementClient

    from ..doctor.findings import Verdict, problem
    from ..doctor.job import job_findings
    from ..doctor.machine import CONNECTION, machine_findings
    from ..doctor.own_source import own_source_findings
    from ..doctor.settings import settings_findings
    from ..doctor.streams import StreamChecks, Use

    try:
        registry = load_registry()
    except PluginError as error:
        return [problem("plugins", error)]
    findings = [*await settings_findings(registry, properties), *await machine_findings(properties, [*uses])]
    is_reachable = not any(each.name == CONNECTION and each.verdict is Verdict.PROBLEM for each in findings)
    target = properties.value(SINK_STREAM) if has_job and properties.value(SINK) == "kinesis" else None
    try:
        client = ManagementClient(properties, [*uses, *([] if target is None else [target])])
    except ConfigurationError:  # one of the findings says which setting
        return findings
    async with client:
        if is_reachable:
            largest = 0
            for stream, use in [*uses.items()]:
                if (own := await own_source_findings(registry, properties, stream)) is not None:
                    findings += own
                    del uses[stream]
                    continue
                checks = StreamChecks(client, stream, use, SystemClock())
                findings += await checks.findings()
                largest = max(largest, checks.max_record_bytes or 0)
            if target is not None:
                use = Use(reads=False, writes=True, copied_bytes=largest or None)
                findings += await StreamChecks(client, target, use, SystemClock()).findings()
        if has_job:
            findings += await job_findings(registry, properties, [*uses] if is_reachable else [], client)
    return findings
