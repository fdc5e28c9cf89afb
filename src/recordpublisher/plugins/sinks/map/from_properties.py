"""The map sink of a job that is started by its properties (`flink.sink = map`)."""

from __future__ import annotations

from recordpublisher.plugins.host.function_property import import_check, imported_function
from recordpublisher.publishers.checks import Checks
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties import table
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.user_code import is_coroutine_function

from .sink import MapSink


class MapSinkFromProperties(MapSink):
    """`MapSink` with the arguments of `flink.sink.map.*`."""

    def __init__(self, properties: Properties) -> None:
        """Raises: ConfigurationError for an invalid value, or a function that cannot be imported."""
        value = properties.value
        timeout, max_age = value(table.MAP_TIMEOUT), value(table.MAP_MAX_AGE)
        function = imported_function(properties, table.MAP_FUNCTION, "module:function, of a function of a Record")
        if timeout is not None and not is_coroutine_function(function):
            reason = "a plain function runs in a thread, which cannot be ended"
            raise ConfigurationError(table.MAP_TIMEOUT.key, timeout, "not set, or an async function", reason=reason)
        if value(table.MAP_ON_FAILURE) == "DEAD_LETTER" and value(table.ON_POISON) == "FAIL":
            reason = f"with {table.ON_POISON.key}=FAIL the first of them ends the job"
            valid = f"FAIL or SKIP, or this with {table.ON_POISON.key}=DEAD_LETTER and {table.DEAD_LETTER_SINK.key}"
            raise ConfigurationError(table.MAP_ON_FAILURE.key, "DEAD_LETTER", valid, reason=reason)
        self._function = function
        super().__init__(
            function,
            concurrency=value(table.MAP_CONCURRENCY),
            ordering=value(table.MAP_ORDERING),
            batch_size=value(table.MAP_BATCH_SIZE),
            batch_wait=value(table.MAP_BATCH_WAIT) / 1000,
            retries=value(table.MAP_RETRIES),
            timeout=None if timeout is None else timeout / 1000,
            max_age=None if max_age is None else max_age / 1000,
            on_failure=value(table.MAP_ON_FAILURE),
            max_bytes=value(table.MAP_MAX_BYTES),
        )

    def checks(self) -> Checks:
        """The function was imported."""
        return {"function": import_check(self._function)}
