"""`recordpublisher doctor`: finds what will fail before a job starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.job_properties import SINK

from ..execution import FAILED, run_to_end
from ..options import PropertiesFile, PropertyOptions, is_job, is_python_job, search_current_folder, with_properties
from ..output import SafeText, aligned, echo, joined, json_text, styled

if TYPE_CHECKING:
    from ..doctor.findings import Finding


@with_properties
def doctor(
    options: PropertyOptions,
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB.properties|MODULE:NAME|STREAM", help="The job, or as --stream."),
    ] = None,
    streams: Annotated[
        list[str] | None,
        typer.Option(
            "--stream", metavar="NAME", help="Without a job: this stream, to read and to write; may be repeated."
        ),
    ] = None,
    file: PropertiesFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line for each check.")] = False,
) -> None:
    """Say what will fail, before a job starts: one line for each check, ok or what to do. Nothing is changed.

    Checks properties, plugins, versions and the connection; for each stream its settings and each IAM action that the job needs; for a
    job its store, its sink, and the time until unread records are lost; for a query on Spark the place where its tasks store what they
    read. Exits with 1 when there is a problem.

    Example: recordpublisher doctor --stream orders --properties local.properties

    Example: recordpublisher doctor job.properties
    """
    # Imported with the code that follows, because it loads the AWS SDK.
    from recordpublisher.plugins.runtime.job_of_program import describe_program
    from recordpublisher.plugins.runtime.stream_names import streams_of
    from recordpublisher.plugins.spark.options.spark_options import is_query

    from ..doctor.examination import all_findings
    from ..doctor.findings import Finding, Verdict
    from ..doctor.spark_job import spark_job_findings
    from ..doctor.streams import stream_use_of

    if job is not None and not is_job(job):
        streams = [*(streams or ()), job]
        job = None
    if (job is None) != bool(streams):
        if job is not None:
            raise ConfigurationError.conflict("--stream", job, reason=f"for a stream alone, write --properties {job}")
        raise ConfigurationError("JOB", None, "the properties of a job, or --stream")
    if job is not None and file is not None:
        raise ConfigurationError.conflict("--properties", job, reason="a job has its own properties")
    search_current_folder()  # `run` does the same, for the functions that the properties name.
    deserializer, sink, is_program = None, None, job is not None and is_python_job(job)
    if job is not None and is_program:
        properties, deserializer, sink = describe_program(job, options.given())
    else:
        properties = options.read(file) if job is None else options.read_job_or_query(job)
    if job is not None and is_query(properties):
        findings = run_to_end(spark_job_findings(properties))
    else:
        uses = {each: stream_use_of(properties, each, writes=job is None) for each in streams or streams_of(properties)}
        findings = run_to_end(
            all_findings(properties, uses, has_job=job is not None, deserializer=deserializer, sink=sink)
        )
        if is_program and not properties.is_set(SINK):
            own = Finding("sink", Verdict.NOT_CHECKED, "an object of the program")
            findings = [own if each.name == own.name else each for each in findings]
    if as_json:
        echo(joined(json_text(asdict(each)) for each in findings))
    else:
        _print(findings)
    if any(each.verdict.value == "PROBLEM" for each in findings):
        raise typer.Exit(FAILED)


def _print(findings: Sequence[Finding]) -> None:
    colours = {"ok": "green", "PROBLEM": "red", "not checked": "yellow"}
    lines = aligned([(each.verdict.value, each.name, each.words) for each in findings])
    for each, line in zip(findings, lines, strict=True):
        verdict = each.verdict.value
        echo(SafeText(styled(verdict, colours[verdict]) + line.removeprefix(verdict)))
