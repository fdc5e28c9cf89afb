"""What a person should hear about a running query, each thing once unless it happens anew."""

from __future__ import annotations

import logging
from collections.abc import Collection

from ..options import SparkOptions
from .batch_alignment import AlignmentSettings
from .batch_claims import BatchClaims
from .batch_offset import BatchOffset

LOG = logging.getLogger("recordpublisher.spark")
WARM_AFTER = 3
"""The first batches start workers and clients: their times say nothing."""


class OneTimeWarnings:
    """Owns what was said already."""

    def __init__(self, options: SparkOptions) -> None:
        self._options = options
        self._said: set[str] = set()

    def of_batch(self, start: BatchOffset, offset: BatchOffset, claimed: BatchClaims) -> None:
        """What the batch of `start` showed, now that `offset` is planned."""
        if claimed.missing:
            text = "claims of batch %s are missing (tasks %s): their shards are read again from where the batch started"
            LOG.warning(text, start.batch, claimed.missing)
        if start.batch > WARM_AFTER:
            self._of_short_lookahead(start, offset)
            self._of_tasks_in_a_row(start, claimed)

    def of_dropped(self, streams: Collection[str]) -> None:
        """Streams that the checkpoint knows and the options do not name any more."""
        if streams:
            text = (
                "not read any more, and their positions are forgotten: %s; added again, they begin where the job began"
            )
            LOG.warning(text, ", ".join(sorted(streams)))

    def of_forgotten(self, offset: BatchOffset) -> None:
        """The claim store is not the one in which the batch was planned."""
        text = (
            "the claims of batch %s are lost, the claim store does not know the query: the batch is run again without rows, "
            "and its records come with the next one, also those that the sink has already"
        )
        LOG.warning(text, offset.batch)

    def of_an_unread_batch(self, offset: BatchOffset) -> None:
        """An AvailableNow run whose sink never read a batch."""
        text = "no task of batch %s was run, so the run ends here: does the sink read the batch?"
        LOG.warning(text, offset.batch - 1)

    def _of_short_lookahead(self, start: BatchOffset, offset: BatchOffset) -> None:
        lookahead = AlignmentSettings.of(self._options.properties).lookahead
        took = offset.planned_ms - start.planned_ms
        if lookahead is not None and lookahead < 2 * took:
            text = (
                "flink.watermark.lookahead.millis (%s) is below twice the time of a batch (%s ms): "
                "on live data such a job never catches up"
            )
            self._once(text, lookahead, took)

    def _of_tasks_in_a_row(self, start: BatchOffset, claimed: BatchClaims) -> None:
        """Reads that began a window apart were not at the same time: there are fewer slots than tasks."""
        began = claimed.began_ms
        if len(began) > 1 and max(began) - min(began) >= self._options.window_ms:
            text = "the %s tasks of a batch read one after the other, %s ms apart: set maxTasks to the number of free slots"
            self._once(text, start.tasks, max(began) - min(began))

    def _once(self, text: str, *values: object) -> None:
        if text not in self._said:
            self._said.add(text)
            LOG.warning(text, *values)
