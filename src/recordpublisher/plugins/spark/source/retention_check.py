"""At the start of a query: whether records passed the stream's retention while no query ran (S5)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from recordpublisher.fetcher.checkpoints.restore import data_loss_error, shards_no_longer_listed, shards_past_retention
from recordpublisher.fetcher.checkpoints.snapshot import RestoredState
from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.properties import table
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard

from ..service.planning_service import PlanningService
from .batch_offset import BatchOffset

LOG = logging.getLogger("recordpublisher.spark")


def accepts_data_loss(properties: Properties) -> bool:
    """Whether the job goes on without records that are past retention."""
    return properties.value(table.ON_DATA_LOSS) == "CONTINUE"


def lost_shards(
    offset: BatchOffset, streams: Iterable[str], service: PlanningService, properties: Properties
) -> frozenset[str]:
    """The shards of the offset, by `Shard.key`, that are not listed any more, for a job that goes on without them.

    `streams` by name. Raises: DataLossError that names what is past retention, unless the job goes on (S5).
    """
    states = {key: entry.state for key, entry in offset.shards.items()}
    names = set(streams) & {entry.shard.stream for entry in offset.shards.values()}
    try:
        listed = {name: service.list_shards(name) for name in names}
        oldest = {name: service.oldest_retained_ms(name) for name in names}
    except RecordPublisherError as error:  # the tasks meet the same error and report it better
        LOG.warning("cannot check whether records are past retention: %s", error)
        return frozenset()
    every: list[Shard] = [shard for shards in listed.values() for shard in shards]
    restored = RestoredState(states)
    missing = shards_no_longer_listed(every, restored, names)
    lost = missing + shards_past_retention(every, restored, oldest)
    if lost and not accepts_data_loss(properties):
        raise data_loss_error(lost, restored)
    if lost:
        LOG.error("%s; going on because flink.state.dataloss=CONTINUE", data_loss_error(lost, restored))
    return frozenset(missing)
