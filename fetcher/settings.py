"""The numbers of one fetcher, read from the properties once."""

from __future__ import annotations

from dataclasses import dataclass

from ..consumer.poison import OnPoison
from ..publishers import property_table as table
from ..publishers.properties import Properties
from .budget import BudgetLimits


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """Typed properties of the fetcher's floor; times in ms, -1 is off where the table says so; `lookahead_ms` None: alignment is off."""

    budget: BudgetLimits
    lookahead_ms: int | None
    idle_interval_ms: int
    sync_interval_ms: int
    emit_interval_ms: int
    startup_timeout_ms: int
    discovery_interval_ms: int
    checkpoint_interval_ms: int
    continue_on_data_loss: bool
    on_poison: OnPoison

    @classmethod
    def of(cls, properties: Properties) -> FetcherSettings:
        """Raises: ConfigurationError for a value that does not parse."""
        return cls(
            budget=BudgetLimits.of(properties),
            lookahead_ms=properties.value(table.LOOKAHEAD),
            idle_interval_ms=properties.value(table.IDLE_INTERVAL),
            sync_interval_ms=properties.value(table.SYNC_INTERVAL),
            emit_interval_ms=properties.value(table.EMIT_INTERVAL),
            startup_timeout_ms=properties.value(table.STARTUP_TIMEOUT),
            discovery_interval_ms=properties.value(table.DISCOVERY_INTERVAL),
            checkpoint_interval_ms=properties.value(table.CHECKPOINT_INTERVAL),
            continue_on_data_loss=properties.value(table.ON_DATA_LOSS) == "CONTINUE",
            on_poison=OnPoison[properties.value(table.ON_POISON)],
        )
