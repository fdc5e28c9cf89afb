"""The map sink of a job that is started by its properties (`flink.sink = map`)."""

from recordpublisher.publishers.base import Checks
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.config_fields import values_of
from recordpublisher.publishers.properties.function_property import import_check, imported_function
from recordpublisher.publishers.properties.groups.bad_records import MAP_ON_FAILURE, ON_BAD_RECORD
from recordpublisher.publishers.properties.groups.sinks import MAP_FUNCTION, MAP_TIMEOUT
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.user_code import is_coroutine_function

from .map_sink import WITH_DEAD_LETTERS, MapSink
from .settings import MapSettings


class MapSinkFromProperties(MapSink):
    """`MapSink` with the arguments of `flink.sink.map.*`."""

    def __init__(self, properties: Properties) -> None:
        """Raises: ConfigurationError for an invalid value, or a function that cannot be imported."""
        value = properties.value
        timeout = value(MAP_TIMEOUT)
        function = imported_function(properties, MAP_FUNCTION, "module:function, of a function of a Record")
        if timeout is not None and not is_coroutine_function(function):
            reason = "a plain function runs in a thread, which cannot be ended"
            raise ConfigurationError(MAP_TIMEOUT.key, timeout, "not set, or an async function", reason=reason)
        if value(MAP_ON_FAILURE) == "DEAD_LETTER" and value(ON_BAD_RECORD) != "DEAD_LETTER":
            reason = f"with {ON_BAD_RECORD.key}={value(ON_BAD_RECORD)} none is written"
            raise ConfigurationError(MAP_ON_FAILURE.key, "DEAD_LETTER", WITH_DEAD_LETTERS, reason=reason)
        self._function = function
        super().__init__(function, **values_of(MapSettings, properties))

    def checks(self) -> Checks:
        """The function was imported."""
        return {"function": import_check(self._function)}
