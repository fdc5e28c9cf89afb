"""Opens the stored positions of a job, and makes the probes that compare them with its streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from recordpublisher.fetcher.sink import stores_positions
from recordpublisher.plugins.host.build_from_properties import reads_a_queue, why_not_in_kinesis
from recordpublisher.plugins.lag.job_state import JobStateReader
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.job_properties import JOB_NAME, SINK, STATE_URI
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import RECORD_PUBLISHER

if TYPE_CHECKING:
    from recordpublisher.plugins.lag.probe import LagProbe

FROM_ROWS = (
    "the state store has no positions, or names workers that are gone, as after a restore from an older copy: these were read next to the "
    "sink's rows. If workers exchanged a shard just then, its last records may be written again"
)


def job_state_reader(properties: Properties, use_sink: bool) -> JobStateReader | None:
    """Return a reader of the job's positions, or None if there is no place that stores them.

    `use_sink`: whether to read the positions from the sink, if the sink stores them. Otherwise they are read from the state store.

    Raises: ConfigurationError if a property is invalid, or the folder of the state does not exist.
    """
    from recordpublisher.plugins.host.build_from_properties import build_sink, build_store, check_properties
    from recordpublisher.plugins.host.plugin_loading import load_registry

    registry = load_registry()
    check_properties(registry, properties)
    sink, name = properties.value(SINK) if use_sink else None, properties.value(JOB_NAME)
    if sink is not None and stores_positions(registry.sinks.get(sink, SINK.key)):
        keeping = build_sink(registry, properties)
        store = None if _is_missing_folder(properties) else build_store(registry, properties)
        return JobStateReader(store, keeping, name)
    check_folder(properties)
    store = build_store(registry, properties)
    return None if store is None else JobStateReader(store, job_name=name)


def check_folder(properties: Properties) -> None:
    """Check that the folder of the stored state exists. Raises: ConfigurationError if it does not."""
    if _is_missing_folder(properties):
        uri = properties.value(STATE_URI)
        raise ConfigurationError(
            STATE_URI.key, uri, "an existing folder with a job's state", reason="it does not exist"
        )


def _is_missing_folder(properties: Properties) -> bool:
    """Return whether the state is stored in a folder that does not exist.

    The caller checks this before it opens the store, because opening would create the folder, even for a mistyped path.
    """
    from recordpublisher.plugins.stores.by_location import missing_folder

    uri = properties.value(STATE_URI)
    return uri is not None and missing_folder(uri) is not None


@asynccontextmanager
async def open_probes(
    properties: Properties, streams: Sequence[str], positions: JobStateReader | None
) -> AsyncIterator[list[LagProbe]]:
    """Open a probe for each stream while the block runs. `positions` is closed at the end.

    Raises: ConfigurationError if the streams are not Kinesis streams and the job stores no positions.
    """
    # Imported here, because these modules load the AWS SDK.
    from recordpublisher.plugins.lag.probe import LagProbe
    from recordpublisher.plugins.positions.job_positions import lister_and_streams
    from recordpublisher.publishers.kinesis import KinesisClient

    async with AsyncExitStack() as opened:
        if positions is not None:
            opened.push_async_callback(positions.close)
        if positions is None:
            check_streams_of_kinesis(properties)
        if why_not_in_kinesis(properties):
            lister, names = await opened.enter_async_context(lister_and_streams(properties, streams))
            yield [LagProbe.of(properties, lister, None, stream, positions) for stream in names]
            return
        services = {stream: await opened.enter_async_context(KinesisClient(properties, [stream])) for stream in streams}
        yield [LagProbe.of(properties, service, service, stream, positions) for stream, service in services.items()]


def check_streams_of_kinesis(properties: Properties) -> None:
    """Check that the streams are in Kinesis. Raises: ConfigurationError if a queue or the publisher of a plugin is read."""
    if why := why_not_in_kinesis(properties):
        shown = (
            ""
            if reads_a_queue(properties)
            else ", or without --check a job that stores its positions (flink.state.uri)"
        )
        valid = f"lag --live URL, which asks the running job (run --dashboard){shown}"
        raise ConfigurationError(RECORD_PUBLISHER.key, properties.as_given(RECORD_PUBLISHER), valid, reason=why)
