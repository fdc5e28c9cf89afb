"""Reads the list of a job's streams: names or ARNs, a file that has them, or a function that returns them."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, cast

from recordpublisher.fetcher.shards.discovery import StreamList
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.kinesis import run_sync
from recordpublisher.publishers.properties.config_fields import imported_function
from recordpublisher.publishers.properties.job_properties import (
    DISCOVERY_INTERVAL,
    STREAMS,
    STREAMS_FILE,
    STREAMS_FUNCTION,
)
from recordpublisher.publishers.properties.properties import Properties, hint_of_misspelt
from recordpublisher.publishers.shards import stream_name
from recordpublisher.publishers.user_code import UserFunction, describe_error

log = logging.getLogger("recordpublisher.discovery")
GivenStreams: TypeAlias = str | Sequence[str]
StreamsFunction: TypeAlias = Callable[[], GivenStreams | Iterable[str] | Awaitable[GivenStreams | Iterable[str]]]
StreamsArgument: TypeAlias = GivenStreams | StreamsFunction
"""The streams of a job: names, ARNs or NAME=ARN; or a function, plain or async, that returns them and is called repeatedly."""

_VALID = "one or more stream names or ARNs"
_PROPERTIES_FIRST = "the first argument is the stream's name; properties are the second"
_VALID_FUNCTION = "a function that returns names or ARNs"
_LINE = re.compile(r"[\w.:/=+@-]+")


def stream_names(streams: GivenStreams) -> dict[str, str]:
    """Return a dict from each stream's name to the given text: a name, an ARN or NAME=ARN.

    Raises: ConfigurationError if a text is not a valid name or ARN, or if a name occurs twice.
    """
    if isinstance(streams, Mapping):  # The error does not show the mapping, because its values may be secrets.
        raise ConfigurationError("streams", "a mapping", _VALID, reason=_PROPERTIES_FIRST)
    given = [streams] if isinstance(streams, str) else list(streams) if isinstance(streams, Iterable) else []
    if not given or not all(isinstance(each, str) and each.strip() for each in given):
        raise ConfigurationError("streams", streams or None, _VALID)
    if wrong := next((each for each in given if not _LINE.fullmatch(each.strip())), None):
        valid = "a name of letters, digits, _ . - or an ARN, without quotes; a comment needs a line of its own"
        if "," in wrong:
            valid = f"a list, such as {[each.strip() for each in wrong.split(',')]}"
        raise ConfigurationError("streams", wrong, valid)
    names = {stream_name(each.strip()): each.strip() for each in given}
    if len(names) != len(given):
        reason = "two streams have the same name. If they are different streams, give one of them a name of its own"
        raise ConfigurationError(
            "streams", given, "each stream once, such as eu=arn:aws:kinesis:eu-west-1:...", reason=reason
        )
    return names


class StreamNames:
    """Owns the last valid list of streams, and the given text (name, ARN or NAME=ARN) of each name that was ever in the list.

    The constructor calls the function once, if one is given. Raises: ConfigurationError if the function fails or does not return a valid
    list of streams.
    """

    def __init__(self, streams: StreamsArgument) -> None:
        self.function = streams if callable(streams) else None
        first = streams if self.function is None else _called(self.function)
        self.given: dict[str, str] = stream_names(cast("GivenStreams", first))
        """The given text for the name of each stream. Streams that were removed from the list stay here."""
        self._last = tuple(self.given)
        self._failure: str | None = None

    @property
    def identity(self) -> tuple[str, ...]:
        """The names of the streams, or the name of the function or file that lists them. It is the same in all processes of a job."""
        if self.function is None:
            return self._last
        function = self.function
        name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
        return (str(function) if isinstance(function, StreamsFile) else name,)

    def stream_list(self, check: Callable[[Sequence[str]], None], properties: Properties) -> StreamList:
        """Return the list of streams for the fetcher. A function of the user is called again every `flink.shard.discovery.intervalmillis`.

        - `check`: raises an error for streams that the job's publisher cannot read.
        """
        interval_ms = properties.value(DISCOVERY_INTERVAL)
        if self.function is None or interval_ms < 0:
            return StreamList(self._last)
        return StreamList(self._last, lambda: self._look(check), interval_ms / 1000)

    async def _look(self, check: Callable[[Sequence[str]], None]) -> Sequence[str]:
        """Return the streams that the function names now. If they cannot be used, warn once and return the last valid list."""
        assert self.function is not None
        try:
            # A UserFunction runs in a thread, because the function may read a file or call a service.
            found = await UserFunction("streams", self.function, _VALID_FUNCTION)()
            names = stream_names(cast("GivenStreams", found))
            self._check_same(names)
            check(list(names.values()))
        except Exception as error:
            self._on_failure(str(error) if isinstance(error, ConfigurationError) else describe_error(error))
            return self._last
        if self._failure is not None:
            log.info("the list of streams can be used again: %s", ", ".join(names))
        self._failure = None
        self.given |= names
        self._last = tuple(names)
        return self._last

    def _on_failure(self, reason: str) -> None:
        if reason != self._failure:
            log.warning(
                "the list of streams cannot be used: %s. The job continues with %s", reason, ", ".join(self._last)
            )
        self._failure = reason

    def _check_same(self, names: Mapping[str, str]) -> None:
        for name, given in names.items():
            if self.given.get(name, given) != given:
                valid = f"{self.given[name]}, as before: positions belong to the name; another stream needs a name of its own, NAME=ARN"
                raise ConfigurationError("streams", given, valid)


class StreamsFile:
    """A file with the name, the ARN or NAME=ARN of a stream on each line. Empty lines and lines that begin with # are ignored."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __str__(self) -> str:
        return self._path

    def __call__(self) -> list[str]:
        """Return the streams that are in the file now.

        Raises: ConfigurationError if the file cannot be read, or has an invalid line or no stream.
        """
        valid = "a file with the name or ARN of a stream on each line"
        try:
            lines = [line.strip() for line in Path(self._path).read_text(encoding="utf-8-sig").splitlines()]
        except (OSError, UnicodeError) as error:
            raise ConfigurationError(STREAMS_FILE.key, self._path, valid, reason=str(error)) from error
        found = [line for line in lines if line and not line.startswith("#")]
        wrong = [line for line in found if not _LINE.fullmatch(line)]
        if wrong or not found:
            reason = f"it has the line {wrong[0][:100]!r}" if wrong else "it has none"
            raise ConfigurationError(STREAMS_FILE.key, self._path, valid, reason=reason)
        return found


def streams_argument(properties: Properties) -> StreamsArgument:
    """Return the streams that the properties give: a list of names or ARNs, or the file or function that lists them.

    Raises: ConfigurationError if not exactly one of list, file and function is set, or if the function cannot be imported.
    """
    keys = [each for each in (STREAMS, STREAMS_FILE, STREAMS_FUNCTION) if properties.is_set(each)]
    if len(keys) > 1:
        raise ConfigurationError.conflict(keys[1].key, keys[0].key, reason="each of them names the streams")
    if properties.is_set(STREAMS_FILE):
        return StreamsFile(properties.value(STREAMS_FILE) or "")
    if properties.is_set(STREAMS_FUNCTION):
        valid = "module:function, of a function without arguments that returns names or ARNs of streams"
        return cast("StreamsFunction", imported_function(properties, STREAMS_FUNCTION, valid))
    given = [name.strip() for name in (properties.value(STREAMS) or "").split(",")]
    if not any(given):
        valid = f"names or ARNs of streams, separated by commas, or {STREAMS_FILE.key}, or {STREAMS_FUNCTION.key}"
        raise ConfigurationError(STREAMS.key, None, valid, reason=hint_of_misspelt(STREAMS.key, properties))
    return [name for name in given if name]


def streams_of(properties: Properties) -> list[str]:
    """Return the current streams of the job, as given. Raises: ConfigurationError if there are none."""
    given = streams_argument(properties)
    return list(StreamNames(given).given.values()) if callable(given) else list(given)


def _called(function: StreamsFunction) -> object:
    async def call() -> object:
        return await UserFunction("streams", function, _VALID_FUNCTION)()

    try:
        return run_sync(call())
    except ConfigurationError:
        raise
    except Exception as error:
        name = getattr(function, "__qualname__", repr(function))
        raise ConfigurationError("streams", name, _VALID_FUNCTION, reason=describe_error(error)) from error
