"""Checks the options of a job as far as possible without a call to a service.

It imports only modules that are also needed to read the options.
"""

import warnings

from recordpublisher.plugins.host.build_from_properties import checked_publisher_class
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.runtime.argument_checks import check_bounded, check_reading
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.fan_out_properties import DEREGISTRATION
from recordpublisher.publishers.properties.job_properties import (
    DESERIALIZER,
    MAX_LAG,
    ON_BAD_RECORD,
    SCHEMA,
    TIMESTAMP_FIELD,
)
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import RECORD_PUBLISHER

from .spark_options import SparkOptions
from .start_by_shard import starts_of


def check_job(options: SparkOptions) -> None:
    """Make every check that needs no call to Kinesis, including the checks of the tasks' fetchers.

    Raises: ConfigurationError if a setting is invalid.
    """
    registry, properties = load_registry(), options.properties
    _warn_of_deregistration(options)
    publisher = checked_publisher_class(registry, properties, "Spark, which reads each row exactly once,")
    if publisher.finds_gaps:
        name = properties.as_given(RECORD_PUBLISHER)
        reason = "a query asks the stream which records a batch has, and cannot read an archive; read its files with spark.read"
        raise ConfigurationError(RECORD_PUBLISHER.key, name, "POLLING, EFO", reason=reason)
    publisher.check(properties, list(options.streams))
    check_reading(registry, properties)
    check_bounded(properties)
    starts_of(properties, options.streams)
    if properties.value(MAX_LAG) is not None:
        warnings.warn(f"'{MAX_LAG.key}' has no effect on Spark", UserWarning, stacklevel=2)
    _warn_of_unused_values(properties)


def _warn_of_unused_values(properties: Properties) -> None:
    """Warn if the tasks decode every record and nothing of its value is in a row."""
    # With SKIP the deserializer at least decides which records are left out.
    uses = properties.is_set(SCHEMA) or properties.is_set(TIMESTAMP_FIELD) or properties.value(ON_BAD_RECORD) != "FAIL"
    name = properties.value(DESERIALIZER)
    if name.lower() != "bytes" and not uses:
        text = (
            f"'{DESERIALIZER.key}' is '{name}', and '{SCHEMA.key}' is not set: every record is decoded, and a bad one ends the query, but "
            "the rows only have its bytes, in 'data'. Set a schema, or leave the deserializer out and decode 'data', for example with a UDF"
        )
        warnings.warn(text, UserWarning, stacklevel=3)


def _warn_of_deregistration(options: SparkOptions) -> None:
    """Warn if the user asks for deregistration of the consumer.

    It will not happen, because Spark does not report that a query has ended.
    """
    key = DEREGISTRATION
    if options.is_fan_out and options.properties.is_set(key) and options.properties.value(key) != "NEVER":
        remedy = "add the listener rp.spark.ConsumerDeregistration, or call rp.spark.deregister_consumers"
        text = f"'{key.key}' has no effect on Spark: the consumer stays registered when the query ends, and AWS charges for it; {remedy}"
        warnings.warn(text, UserWarning, stacklevel=3)
