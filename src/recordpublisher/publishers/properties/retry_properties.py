"""RetryProperties: the four properties of one operation's retries."""

from dataclasses import dataclass

from ..errors import ConfigurationError
from ..retry import RetryPolicy
from .declaration import Property, PropertyValues
from .property_types import PropertyGroup


@dataclass(frozen=True, slots=True)
class RetryProperties:
    """The four properties of one operation's retries."""

    max_retries: Property[int]
    base: Property[int]
    maximum: Property[int]
    exponent: Property[float]

    def policy(self, properties: PropertyValues) -> RetryPolicy:
        """The typed policy. Raises: ConfigurationError when the base is above the maximum (C2)."""
        base, maximum = properties.value(self.base), properties.value(self.maximum)
        if base > maximum:
            raise ConfigurationError(self.base.key, base, f"at most {self.maximum.key} ({maximum})")
        return RetryPolicy(properties.value(self.max_retries), base, maximum, properties.value(self.exponent))


def retry_properties(
    group: PropertyGroup,
    stem: str,
    operation: str,
    retries: int,
    base: int,
    maximum: int,
    connector: tuple[str, str, str] = ("", "", ""),
) -> RetryProperties:
    """Declare the four properties. `connector`: the connector's retries, base and maximum where they differ from the FLIP's."""
    retries_words = f"Failures of {operation} in a row, without progress between them, before the job fails."
    of_connector, base_of_connector, maximum_of_connector = connector
    return RetryProperties(
        group.integer(f"{stem}.maxretries", retries_words, retries, connector=of_connector),
        group.integer(
            f"{stem}.backoff.base", f"First back-off of {operation}.", base, unit="ms", connector=base_of_connector
        ),
        group.integer(
            f"{stem}.backoff.max",
            f"Largest back-off of {operation}.",
            maximum,
            unit="ms",
            connector=maximum_of_connector,
        ),
        group.number(f"{stem}.backoff.expconst", f"Growth of the back-off of {operation}.", 1.5, minimum=1.0),
    )
