"""Warnings about a running query. They are logged and shown in the progress; warnings about its settings are logged once."""

import logging
from collections.abc import Collection

from recordpublisher.publishers.properties.groups.job import LOOKAHEAD

from ..options.spark_options import SparkOptions
from .batch_claims import BatchClaims
from .offset import BatchOffset
from .retention import RetentionLeft

LOG = logging.getLogger("recordpublisher.spark")
HOUR_MS = 3_600_000
WARN_FROM_RETENTION_PART = 0.8
"""How old the oldest unread record may be without a warning, as a part of the retention."""
NEAR_LOSS = "records of %s are lost in %.1f h unless they are read before: the stream keeps them for %.0f h"
NOT_READ = (
    ". Does the sink read the batch? A file sink skips the batches that _spark_metadata in its folder has: a new checkpoint needs a new "
    "folder"
)
PARTLY_READ = (
    ". Does the sink take a part of a batch, as take(1) in foreachBatch does? Rows of tasks that ran do not come again"
)
WARM_UP_BATCHES = 3
"""The first batches start workers and clients, so their times are not representative."""


class QueryWarnings:
    """Owns the warnings that the progress shows: the last warning of each kind, after the warnings about the options."""

    def __init__(self, options: SparkOptions) -> None:
        self._options = options
        self._texts = {text: text for text in options.warnings.texts}
        self._is_near_loss = False

    @property
    def texts(self) -> list[str]:
        """The warnings as the progress shows them."""
        return list(self._texts.values())

    def after_batch(self, previous: BatchOffset, offset: BatchOffset, claims: BatchClaims) -> None:
        """Warn about the batch `previous`, once `offset` is planned."""
        if claims.missing:
            text = "claims of batch %s are missing (tasks %s): their shards are read again from where the batch started"
            hint = NOT_READ if claims.is_unread else PARTLY_READ
            if not claims.has_token:  # the claims are lost
                hint = ""
            self._warn(text + hint, previous.batch, claims.missing)
        if previous.batch > WARM_UP_BATCHES:
            self._short_lookahead(previous, offset)
            self._tasks_one_after_the_other(previous, claims)

    def retention_left(self, worst: RetentionLeft | None) -> None:
        """Warn if the query is so far behind that records may pass their stream's retention unread.

        Warn again only after it has caught up.
        """
        is_near = worst is not None and worst.left_ms < (1 - WARN_FROM_RETENTION_PART) * worst.retention_ms
        if worst is not None and is_near and not self._is_near_loss:
            self._warn(NEAR_LOSS, worst.shard, worst.left_ms / HOUR_MS, worst.retention_ms / HOUR_MS)
        if not is_near:
            self._texts.pop(NEAR_LOSS, None)
        self._is_near_loss = is_near

    def dropped_streams(self, streams: Collection[str]) -> None:
        """Warn of streams of the checkpoint that are no longer among the options."""
        if streams:
            text = "no longer read, and their positions are forgotten: %s; if added again, they start where the job started"
            self._warn(text, ", ".join(sorted(streams)))

    def old_claims(self, queries: Collection[str]) -> None:
        """Warn that a new query found claims of other queries in its own place, because a checkpoint may be lost."""
        if queries:
            text = (
                "metadataLocation has claims of %s, and this query has a new checkpoint: it begins at flink.stream.initpos, not where that "
                "one ended. If a checkpoint was lost or mistyped, stop, and use it. Queries that share a place name it as metadataRoot"
            )
            self._once(text, ", ".join(sorted(queries)))

    def shared_consumer(self, shards: Collection[str]) -> None:
        """Warn once that subscriptions are disturbed batch after batch."""
        if shards:
            text = "subscriptions to %s are taken over or refused batch after batch: does another query or job use the consumer %s?"
            self._once(text, ", ".join(sorted(shards)), self._options.consumer)

    def lost_claims(self, offset: BatchOffset) -> None:
        """Warn that the batch was not planned with this claim store."""
        text = (
            "the claims of batch %s are lost: metadataLocation has none of this query. The batch runs again without rows, and its "
            "records come with the next one, including those that the sink already has"
        )
        self._warn(text, offset.batch)

    def unread_batch(self, offset: BatchOffset) -> None:
        """Warn that an AvailableNow run ends because its sink did not read a batch."""
        LOG.warning("no task of batch %s ran, so the run ends here" + NOT_READ, offset.batch - 1)

    def _short_lookahead(self, previous: BatchOffset, offset: BatchOffset) -> None:
        lookahead = self._options.properties.value(LOOKAHEAD)
        batch_ms = offset.planned_ms - previous.planned_ms
        if lookahead is not None and lookahead < 2 * batch_ms:
            text = (
                "flink.watermark.lookahead.millis (%s) is below twice the time of a batch (%s ms): "
                "on live data such a job never catches up"
            )
            self._once(text, lookahead, batch_ms)

    def _tasks_one_after_the_other(self, previous: BatchOffset, claims: BatchClaims) -> None:
        """Warn if reads were not concurrent, because they began a window apart. Then there are fewer slots than tasks."""
        began = claims.began_ms
        if len(began) > 1 and max(began) - min(began) >= self._options.window_ms:
            text = (
                "the %s tasks of a batch read one after another, %s ms apart: set maxTasks to the number of free slots"
            )
            self._once(text, len(began), max(began) - min(began))

    def _once(self, text: str, *values: object) -> None:
        if text not in self._texts:
            self._warn(text, *values)

    def _warn(self, text: str, *values: object) -> None:
        LOG.warning(text, *values)
        self._texts[text] = text % values
