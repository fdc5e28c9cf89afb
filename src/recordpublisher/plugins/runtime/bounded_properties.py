"""check_bounded: the properties that a bounded read does not support."""

from __future__ import annotations

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties import table
from recordpublisher.publishers.properties.properties import Properties


def check_bounded(properties: Properties) -> None:
    """Raises: ConfigurationError for a property that bounded reads do not support."""
    if properties.value(table.ON_POISON) == "DEAD_LETTER":
        raise ConfigurationError(
            table.ON_POISON.key, "DEAD_LETTER", "FAIL or SKIP, where the sink is not one of this library (Spark)"
        )
