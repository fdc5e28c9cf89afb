"""check_bounded: the properties that a bounded read does not support."""

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.values_and_time import ON_POISON
from recordpublisher.publishers.properties.properties import Properties


def check_bounded(properties: Properties) -> None:
    """Raises: ConfigurationError for a property that bounded reads do not support."""
    if properties.value(ON_POISON) == "DEAD_LETTER":
        raise ConfigurationError(
            ON_POISON.key, "DEAD_LETTER", "FAIL or SKIP, where the sink is not one of this library (Spark)"
        )
