"""PollingConfig: the properties of polling, typed and checked."""

from __future__ import annotations

from dataclasses import dataclass

from ..properties.groups.polling import ADAPTIVE_READS, GETRECORDS_INTERVAL, GETRECORDS_MAX, TIP_INTERVAL
from ..properties.groups.retries import GETITERATOR_RETRIES, GETRECORDS_RETRIES, LIST_SHARDS_RETRIES
from ..properties.properties import Properties
from ..retry import RetryPolicy


@dataclass(frozen=True, slots=True)
class PollingConfig:
    """`max_records` of one call (1..10,000), `interval_seconds` from loop to loop, adaptive reads on or off, retries by call.

    `tip_interval_seconds` follows an empty read at the tip; it is never shorter than `interval_seconds`.
    """

    max_records: int
    interval_seconds: float
    tip_interval_seconds: float
    adaptive: bool
    get_records: RetryPolicy
    get_iterator: RetryPolicy
    list_shards: RetryPolicy

    @classmethod
    def of(cls, properties: Properties) -> PollingConfig:
        """The typed values. Raises: ConfigurationError with key, value and what is valid."""
        interval_ms = properties.value(GETRECORDS_INTERVAL)
        return cls(
            max_records=properties.value(GETRECORDS_MAX),
            interval_seconds=interval_ms / 1000,
            tip_interval_seconds=max(interval_ms, properties.value(TIP_INTERVAL) or 0) / 1000,
            adaptive=properties.value(ADAPTIVE_READS),
            get_records=GETRECORDS_RETRIES.policy(properties),
            get_iterator=GETITERATOR_RETRIES.policy(properties),
            list_shards=LIST_SHARDS_RETRIES.policy(properties),
        )
