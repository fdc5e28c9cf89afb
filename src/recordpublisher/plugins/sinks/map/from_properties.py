"""The map sink of a job that is started by its properties (`flink.sink = map`)."""

from recordpublisher.plugins.host.function_property import import_check, imported_function
from recordpublisher.publishers.base import Checks
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.bad_records import MAP_ON_FAILURE, ON_BAD_RECORD
from recordpublisher.publishers.properties.groups.sinks import (
    MAP_BATCH_SIZE,
    MAP_BATCH_WAIT,
    MAP_CONCURRENCY,
    MAP_FUNCTION,
    MAP_MAX_AGE,
    MAP_MAX_BYTES,
    MAP_ORDERING,
    MAP_RETRIES,
    MAP_TIMEOUT,
)
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.user_code import is_coroutine_function

from .map_sink import WITH_DEAD_LETTERS, MapSink


class MapSinkFromProperties(MapSink):
    """`MapSink` with the arguments of `flink.sink.map.*`."""

    def __init__(self, properties: Properties) -> None:
        """Raises: ConfigurationError for an invalid value, or a function that cannot be imported."""
        value = properties.value
        timeout, max_age = value(MAP_TIMEOUT), value(MAP_MAX_AGE)
        function = imported_function(properties, MAP_FUNCTION, "module:function, of a function of a Record")
        if timeout is not None and not is_coroutine_function(function):
            reason = "a plain function runs in a thread, which cannot be ended"
            raise ConfigurationError(MAP_TIMEOUT.key, timeout, "not set, or an async function", reason=reason)
        if value(MAP_ON_FAILURE) == "DEAD_LETTER" and value(ON_BAD_RECORD) != "DEAD_LETTER":
            reason = f"with {ON_BAD_RECORD.key}={value(ON_BAD_RECORD)} none is written"
            raise ConfigurationError(MAP_ON_FAILURE.key, "DEAD_LETTER", WITH_DEAD_LETTERS, reason=reason)
        self._function = function
        super().__init__(
            function,
            concurrency=value(MAP_CONCURRENCY),
            ordering=value(MAP_ORDERING),
            batch_size=value(MAP_BATCH_SIZE),
            batch_wait=value(MAP_BATCH_WAIT) / 1000,
            retries=value(MAP_RETRIES),
            timeout=None if timeout is None else timeout / 1000,
            max_age=None if max_age is None else max_age / 1000,
            on_failure=value(MAP_ON_FAILURE),
            max_bytes=value(MAP_MAX_BYTES),
        )

    def checks(self) -> Checks:
        """The function was imported."""
        return {"function": import_check(self._function)}
