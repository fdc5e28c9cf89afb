"""begin_run: what is checked and noted once in each process, before the first batch is planned."""

from collections.abc import Iterable
from dataclasses import dataclass

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.stream_arns import stream_name

from ..options.spark_options import SparkOptions
from ..service.planning_port import PlanningPort
from .offset import BatchOffset
from .plan import AvailableNow
from .retention import lost_shards


@dataclass(frozen=True, slots=True)
class QueryRun:
    """What holds for a whole run.

    - `lost`: shards, by `Shard.key`, that have expired unread, if the job goes on without them.
    - `available_now`: where a run that stops at the tips ends; None for others.
    """

    lost: frozenset[str] = frozenset()
    available_now: AvailableNow | None = None


def begin_run(
    reached: BatchOffset, options: SparkOptions, service: PlanningPort, now_ms: int, *, is_available_now: bool
) -> QueryRun:
    """`reached` is where the last batch ended: it may be read and claimed.

    Raises: DataLossError when records are past retention, unless the job goes on; the error of a service that is away.
    """
    is_new = reached.batch <= 1
    lost = (
        frozenset[str]() if is_new else lost_shards(reached, options.stream_names, service, options.properties, now_ms)
    )
    if not is_available_now:
        return QueryRun(lost)
    list_shards_now(options, service)  # existing shards belong to the run, even if the discovery has not found them yet
    # the service's time is truncated to whole seconds: records of this second belong to the run
    arrival_ms = max(service.server_time_ms(stream) for stream in options.streams) + 1000
    return QueryRun(lost, AvailableNow(arrival_ms, reached.batch - 1))


def list_shards_now(options: SparkOptions, service: PlanningPort) -> None:
    """List the shards of all streams now; the listing is seen by `discovered_shards`."""
    for stream in options.streams:
        service.list_shards(stream)


def dropped_streams(known: Iterable[str], streams: Iterable[str]) -> set[str]:
    """The names in `known`, the streams of the checkpoint, that are not in `streams`, the names or ARNs of the options.

    Raises: ConfigurationError when none of the known streams is left: the checkpoint belongs to another job.
    """
    known, wanted = set(known), {stream_name(stream) for stream in streams}
    if known and not known & wanted:
        names = ", ".join(sorted(known))
        valid = f"streams with {names} among them, or a new checkpointLocation and a new metadataLocation"
        raise ConfigurationError(
            "stream",
            ", ".join(sorted(wanted)),
            valid,
            reason=f"this query has read {names} so far, and positions are kept",
        )
    return known - wanted
