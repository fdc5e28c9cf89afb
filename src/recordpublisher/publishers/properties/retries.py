"""The properties of retries: four for each operation (C1)."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ConfigurationError
from ..retry import RetryPolicy
from .properties import Properties, Property
from .property_types import integer, number


@dataclass(frozen=True, slots=True)
class RetryProperties:
    """The four properties of one operation's retries."""

    max_retries: Property[int]
    base: Property[int]
    maximum: Property[int]
    exponent: Property[float]

    def policy(self, properties: Properties) -> RetryPolicy:
        """The typed policy. Raises: ConfigurationError when the base is above the maximum (C2)."""
        base, maximum = properties.value(self.base), properties.value(self.maximum)
        if base > maximum:
            raise ConfigurationError(self.base.key, base, f"at most {self.maximum.key} ({maximum})")
        return RetryPolicy(properties.value(self.max_retries), base, maximum, properties.value(self.exponent))


def retry_properties(
    stem: str,
    operation: str,
    retries: int,
    base: int,
    maximum: int,
    connector: tuple[str, str, str] = ("", "", ""),
    group: str = "Retries",
) -> RetryProperties:
    """Declare the four properties. `connector`: the connector's retries, base and maximum where they differ from the FLIP's."""
    return RetryProperties(
        integer(
            f"{stem}.maxretries",
            f"Failures of {operation} in a row, without progress between them, before the job fails.",
            retries,
            group=group,
            connector=connector[0],
        ),
        integer(
            f"{stem}.backoff.base",
            f"First back-off of {operation}.",
            base,
            unit="ms",
            group=group,
            connector=connector[1],
        ),
        integer(
            f"{stem}.backoff.max",
            f"Largest back-off of {operation}.",
            maximum,
            unit="ms",
            group=group,
            connector=connector[2],
        ),
        number(f"{stem}.backoff.expconst", f"Growth of the back-off of {operation}.", 1.5, 1.0, group=group),
    )


GETRECORDS_RETRIES = retry_properties("flink.shard.getrecords", "GetRecords", 3, 300, 1_000)
GETITERATOR_RETRIES = retry_properties("flink.shard.getiterator", "GetShardIterator", 3, 300, 1_000)
LIST_SHARDS_RETRIES = retry_properties("flink.list.shards", "ListShards", 10, 1_000, 5_000)
DESCRIBE_STREAM_RETRIES = retry_properties("flink.stream.describe", "DescribeStreamSummary", 50, 2_000, 5_000)
DESCRIBE_CONSUMER_RETRIES = retry_properties(
    "flink.stream.describestreamconsumer", "DescribeStreamConsumer", 50, 2_000, 5_000
)
LIST_CONSUMERS_RETRIES = retry_properties(
    "flink.stream.liststreamconsumers", "ListStreamConsumers", 10, 200, 1_000, ("none", "none", "none")
)
REGISTER_RETRIES = retry_properties(
    "flink.stream.registerstreamconsumer", "RegisterStreamConsumer", 10, 200, 1_000, ("", "500", "2000")
)
DEREGISTER_RETRIES = retry_properties(
    "flink.stream.deregisterstreamconsumer", "DeregisterStreamConsumer", 10, 200, 1_000, ("", "500", "2000")
)
SUBSCRIBE_RETRIES = retry_properties(
    "flink.shard.subscribetoshard", "SubscribeToShard", 5, 1_000, 2_000, ("10", "", "")
)
SQL_RETRIES = retry_properties("flink.sql.transaction", "a transaction of the sql sink or state store", 10, 200, 5_000)
ALL_RETRIES = (
    GETRECORDS_RETRIES, GETITERATOR_RETRIES, LIST_SHARDS_RETRIES, DESCRIBE_STREAM_RETRIES, DESCRIBE_CONSUMER_RETRIES,
    LIST_CONSUMERS_RETRIES, REGISTER_RETRIES, DEREGISTER_RETRIES, SUBSCRIBE_RETRIES, SQL_RETRIES,
)  # fmt: skip
