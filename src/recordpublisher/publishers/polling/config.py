"""PollingConfig: the properties of polling, typed and checked."""

from __future__ import annotations

from dataclasses import dataclass

from ..properties.config_fields import of_property, of_retries, values_of
from ..properties.groups.reading import (
    ADAPTIVE_READS,
    GETITERATOR_RETRIES,
    GETRECORDS_INTERVAL,
    GETRECORDS_MAX,
    GETRECORDS_RETRIES,
    LIST_SHARDS_RETRIES,
    TIP_INTERVAL,
)
from ..properties.properties import Properties
from ..retry import RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class PollingConfig:
    """The settings of polling.

    - `max_records`: the Limit of one call (1..10,000).
    - `interval_seconds`: time from the start of one read to the next.
    - `tip_interval_seconds`: the same after an empty read at the tip, never shorter than `interval_seconds`.
    - `adaptive`: whether the Limit follows the measured size of records.
    - `get_records`, `get_iterator`, `list_shards`: the retry policy of each call.
    """

    max_records: int = of_property(GETRECORDS_MAX)
    interval_seconds: float = of_property(GETRECORDS_INTERVAL, 1000)
    tip_interval_seconds: float
    adaptive: bool = of_property(ADAPTIVE_READS)
    get_records: RetryPolicy = of_retries(GETRECORDS_RETRIES)
    get_iterator: RetryPolicy = of_retries(GETITERATOR_RETRIES)
    list_shards: RetryPolicy = of_retries(LIST_SHARDS_RETRIES)

    @classmethod
    def of(cls, properties: Properties) -> PollingConfig:
        """Return the typed values. Raises: ConfigurationError with key, value and valid values, if a property is invalid."""
        tip_interval_ms = max(properties.value(GETRECORDS_INTERVAL), properties.value(TIP_INTERVAL) or 0)
        return cls(tip_interval_seconds=tip_interval_ms / 1000, **values_of(cls, properties))
