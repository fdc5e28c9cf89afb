"""LastOffset: where a query stands, for Spark 4.0 and 4.1, which do not say so when they ask for the next offset."""

from dataclasses import dataclass
from typing import Any

from recordpublisher.publishers.errors import ConfigurationError

WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


@dataclass(slots=True)
class LastOffset:
    """Owns the offset after which the next batch begins; None for a query without a checkpoint.

    A query that starts again first asks for the tasks between the last offset of its log and itself: so it tells where it stands. From then
    on it stands at the offset that it was given last, since it logs each one before it asks for the next, or ends.
    """

    offset: dict[str, Any] | None = None
    has_planned: bool = False
    """Whether Spark was given an offset by this process."""

    def on_planned(self, offset: dict[str, Any]) -> None:
        """Spark is given this offset: a new one, or the one of before."""
        self.offset, self.has_planned = offset, True

    def on_partitions(self, start: dict[str, Any], end: dict[str, Any]) -> None:
        """Spark asks for the tasks between two offsets.

        Raises: ConfigurationError when it tells where it stands only now that it was given an offset, which was planned as that of a new
        query. No log has it yet.
        """
        if not self.has_planned:
            self.offset = end
        elif start == end:
            reason = (
                "with it PySpark 4.0 and 4.1 ask for the next batch of a query that starts again before they tell where the last "
                "one ended, and rows would be lost; 4.2 and newer do not need it"
            )
            raise ConfigurationError(WRAPPER, "true", "false", reason=reason)
