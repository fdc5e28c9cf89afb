"""StreamNames: which streams a job is given, as names, a file or a function, and what each name stands for."""

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, cast

from recordpublisher.fetcher.shards.stream_list import StreamList
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.kinesis import run_sync
from recordpublisher.publishers.properties.function_property import imported_function
from recordpublisher.publishers.properties.groups.job import STREAMS, STREAMS_FILE, STREAMS_FUNCTION, STREAMS_INTERVAL
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.unknown_keys import unknown_key_near
from recordpublisher.publishers.stream_arns import stream_name
from recordpublisher.publishers.user_code import UserFunction, describe_error

log = logging.getLogger("recordpublisher.discovery")

GivenStreams: TypeAlias = str | Sequence[str]
StreamsFunction: TypeAlias = Callable[[], GivenStreams | Iterable[str] | Awaitable[GivenStreams | Iterable[str]]]
StreamsArgument: TypeAlias = GivenStreams | StreamsFunction
"""What a job is given: names, ARNs or NAME=ARN; or a function, plain or async, that returns them and is called again and again."""

_VALID = "one or more stream names or ARNs"
_PROPERTIES_FIRST = "the first argument is the stream's name; properties are the second"
_VALID_FUNCTION = "a function that returns names or ARNs"
_LINE = re.compile(r"[\w.:/=+@-]+")


def stream_names(streams: GivenStreams) -> dict[str, str]:
    """From each stream's name to what was given: a name, an ARN or NAME=ARN. Raises: ConfigurationError."""
    if isinstance(streams, Mapping):  # its values may be secrets
        raise ConfigurationError("streams", "a mapping", _VALID, reason=_PROPERTIES_FIRST)
    given = [streams] if isinstance(streams, str) else list(streams) if isinstance(streams, Iterable) else []
    if not given or not all(isinstance(each, str) and each.strip() for each in given):
        raise ConfigurationError("streams", streams or None, _VALID)
    if wrong := next((each for each in given if not _LINE.fullmatch(each.strip())), None):
        valid = "a name of letters, digits, _ . - or an ARN, without quotes; a comment stands on a line of its own"
        raise ConfigurationError("streams", wrong, valid)
    names = {stream_name(each.strip()): each.strip() for each in given}
    if len(names) != len(given):
        valid = "each stream once; for streams of the same name a name of its own: eu=arn:aws:kinesis:eu-west-1:..."
        raise ConfigurationError("streams", given, valid)
    return names


class StreamNames:
    """Owns the last good list of streams, and what each name stands for that was ever in it."""

    def __init__(self, streams: StreamsArgument) -> None:
        """Call the function once, if one is given. Raises: ConfigurationError when it fails or returns no list of streams."""
        self.function = streams if callable(streams) else None
        first = streams if self.function is None else _called(self.function)
        self.given: dict[str, str] = stream_names(cast("GivenStreams", first))
        """From the name of each stream to what was given; streams that left the list stay."""
        self._last = tuple(self.given)
        self._failure: str | None = None

    @property
    def identity(self) -> tuple[str, ...]:
        """What tells jobs apart that set no group: the same in all processes of a job, also when their lists differ for a moment."""
        if self.function is None:
            return self._last
        function = self.function
        name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
        return (str(function) if isinstance(function, StreamsFile) else name,)

    def stream_list(self, check: Callable[[Sequence[str]], None], properties: Properties) -> StreamList:
        """The list as the fetcher looks at it. `check` raises for streams that the job's publisher cannot read."""
        if self.function is None:
            return StreamList(self._last)
        return StreamList(self._last, lambda: self._look(check), properties.value(STREAMS_INTERVAL) / 1000)

    async def _look(self, check: Callable[[Sequence[str]], None]) -> Sequence[str]:
        """The streams now. What cannot be used is warned of once, and the last good list stays."""
        assert self.function is not None
        try:
            found = await UserFunction(
                "streams", self.function, _VALID_FUNCTION
            )()  # it may read a file or call a service
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
                "the list of streams cannot be used, the job goes on with %s: %s", ", ".join(self._last), reason
            )
        self._failure = reason

    def _check_same(self, names: Mapping[str, str]) -> None:
        for name, given in names.items():
            if self.given.get(name, given) != given:
                valid = f"{self.given[name]}, as before: positions belong to the name; another stream needs a name of its own, NAME=ARN"
                raise ConfigurationError("streams", given, valid)


class StreamsFile:
    """A file with the name, the ARN or NAME=ARN of a stream on each line; empty lines and those that begin with # do not count."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __str__(self) -> str:
        return self._path

    def __call__(self) -> list[str]:
        """The streams in the file now. Raises: ConfigurationError."""
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
    """What the properties give as streams: names, or a function. Raises: ConfigurationError unless it is exactly one of the three."""
    keys = [each for each in (STREAMS, STREAMS_FILE, STREAMS_FUNCTION) if properties.is_set(each)]
    if len(keys) > 1:
        raise ConfigurationError(keys[1].key, properties.value(keys[1]), f"not set together with {keys[0].key}")
    if properties.is_set(STREAMS_FILE):
        return StreamsFile(properties.value(STREAMS_FILE) or "")
    if properties.is_set(STREAMS_FUNCTION):
        valid = "module:function, of a function without arguments that returns names or ARNs of streams"
        return cast("StreamsFunction", imported_function(properties, STREAMS_FUNCTION, valid))
    given = [name.strip() for name in (properties.value(STREAMS) or "").split(",")]
    if not any(given):
        valid = f"names or ARNs of streams, separated by commas, or {STREAMS_FILE.key}, or {STREAMS_FUNCTION.key}"
        raise ConfigurationError(STREAMS.key, None, valid, reason=unknown_key_near(STREAMS.key, properties))
    return [name for name in given if name]


def streams_of(properties: Properties) -> list[str]:
    """The streams of the job as they are now, as given. Raises: ConfigurationError when there are none."""
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
