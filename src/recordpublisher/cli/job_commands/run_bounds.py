"""The options of `recordpublisher run` that end a job by itself, as cron and CI need it."""

from typing import Annotated

import typer

from recordpublisher.fetcher.pipeline.bounds import Bounds
from recordpublisher.plugins.host.source_kind import reads_a_queue
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.initial_position import from_the_oldest, time_ms
from recordpublisher.publishers.properties.groups.job import JOB_WORKERS
from recordpublisher.publishers.properties.groups.reading import RECORD_PUBLISHER
from recordpublisher.publishers.properties.properties import Properties

_ENDS = "then store everything and exit 0"

StopAtTip = Annotated[
    bool,
    typer.Option(
        "--stop-at-tip",
        help=f"Read what there is now, {_ENDS}; a job without positions begins at the oldest record.",
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help=f"Read records up to this time (their watermark, by default their arrival) or the tip, {_ENDS}.",
    ),
]
MaxRecords = Annotated[
    int | None, typer.Option("--max-records", metavar="COUNT", min=1, help=f"Read this many records, {_ENDS}.")
]


class RunBounds:
    """The bounds that end a run by themselves: made from the options, and checked against the properties of the job."""

    def __init__(self, stop_at_tip: bool, until: str | None, max_records: int | None, parallelism: int) -> None:
        """Read the options. Raises: ConfigurationError if the time cannot be read, or if a bound is given for several processes."""
        self._given = {"--stop-at-tip": stop_at_tip or None, "--until": until, "--max-records": max_records}
        end = None if until is None else time_ms("--until", until)
        self.bounds = Bounds(
            max_records=max_records, until_event_time=end, stop_at_tip=stop_at_tip or until is not None
        )
        if parallelism > 1:
            reason = "the processes share the shards, and none knows how far the others have read"
            self._refuse(f"--parallelism {parallelism}", reason)

    def applied(self, properties: Properties) -> Properties:
        """Return the properties for a run with these bounds.

        A job that ends at the tip and has no start begins at the oldest record.

        Raises: ConfigurationError if a bound is given for a group, or an end time for a queue.
        """
        if properties.value(JOB_WORKERS) == "GROUP":
            reason = "the workers of a group share the shards, and none knows how far the others have read"
            self._refuse(f"{JOB_WORKERS.key}=GROUP", reason)
        if self.bounds.until_event_time is not None and reads_a_queue(properties):
            reason = "a queue keeps no order in time; use --stop-at-tip or --max-records"
            raise ConfigurationError.conflict(
                "--until", f"{RECORD_PUBLISHER.key}={properties.as_given(RECORD_PUBLISHER)}", reason=reason
            )
        return from_the_oldest(properties) if self.bounds.stop_at_tip else properties

    def _refuse(self, other: str, reason: str) -> None:
        """Refuse the first bound that was given, because it cannot be combined with `other`.

        Raises: ConfigurationError if a bound was given.
        """
        for option, value in self._given.items():
            if value is not None:
                raise ConfigurationError.conflict(option, other, reason=reason)
