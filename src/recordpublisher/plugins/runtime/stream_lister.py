"""Reads information about the streams of a job: shards, server time, retention and shard tips.

A publisher with a source of its own lists its shards itself. For all other publishers Kinesis is called.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from recordpublisher.fetcher.shards.discovery import StreamList
from recordpublisher.publishers import kinesis
from recordpublisher.publishers.base import (
    DELETED_SECONDS,
    RecordPublisherFactory,
    oldest_record_of,
    oldest_retained_of,
    shards_listed_by,
    with_unlisted,
)
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import (
    ConfigurationError,
    FatalKinesisError,
    RecordPublisherError,
    ResourceNotFoundError,
    RetriesExhaustedError,
    StreamNotFoundError,
    TransientError,
)
from recordpublisher.publishers.kinesis import run_sync
from recordpublisher.publishers.log_fields import log_extra
from recordpublisher.publishers.polling.publisher import TipDistance, measure_tip_distance, read_oldest_record
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.config_fields import imported_function
from recordpublisher.publishers.properties.job_properties import (
    DISCOVERY_INTERVAL,
    STREAMS,
    STREAMS_FILE,
    STREAMS_FUNCTION,
)
from recordpublisher.publishers.properties.properties import Properties, hint_of_misspelt
from recordpublisher.publishers.properties.reading_properties import ENDPOINT, LIST_SHARDS_RETRIES
from recordpublisher.publishers.retry import FEW_RETRIES, call_with_retries
from recordpublisher.publishers.shards import OldestRecord, Shard, arn_of, first_unlisted_range, stream_name
from recordpublisher.publishers.user_code import UserFunction, describe_error

GivenStreams: TypeAlias = str | Sequence[str]
StreamsFunction: TypeAlias = Callable[[], GivenStreams | Iterable[str] | Awaitable[GivenStreams | Iterable[str]]]
StreamsArgument: TypeAlias = GivenStreams | StreamsFunction
"""The streams of a job: names, ARNs or NAME=ARN; or a function, plain or async, that returns them and is called repeatedly."""

_VALID = "one or more stream names or ARNs"
_PROPERTIES_FIRST = "the first argument is the stream's name; properties are the second"
_VALID_FUNCTION = "a function that returns names or ARNs"
_LINE = re.compile(r"[\w.:/=+@-]+")


class StreamLister:
    """Lists the shards of the job's streams: from the publisher if it lists them itself, else from Kinesis.

    It uses the client of the publisher's factory, because a second client costs 10 MB, 0.1 s and a request for credentials. If
    there is no such client, the lister owns one: the argument `client`, or a client that it opens at the first call.
    """

    def __init__(
        self,
        factory: RecordPublisherFactory,
        properties: Properties,
        names: Mapping[str, str],
        clock: Clock,
        client: kinesis.KinesisClient | None = None,
    ) -> None:
        self._factory = factory
        self._properties = properties
        self._names = names
        self._policy = LIST_SHARDS_RETRIES.policy(properties)
        self._first_policy = replace(self._policy, max_retries=min(self._policy.max_retries, FEW_RETRIES))
        self._has_succeeded = False
        self._clock = clock
        self._client = client
        self._is_own: dict[str, bool] = {}
        self._missing_since: dict[str, float] = {}
        """Since when `discover` has said that a stream does not exist which it had listed before (monotonic seconds)."""
        self._without_retention: set[str] = set()
        self._completely_listed: set[str] = set()

    async def list_shards(self, stream: str, after: str | None = None) -> list[Shard]:
        """Return every shard of the stream, including shards that only the publisher still knows.

        Raises: StreamNotFoundError if there is no such stream; KinesisError if the call fails.
        """
        listed = await self._list(stream, after)
        return listed if after is not None else await with_unlisted(self._factory, stream, listed)

    async def list_live_shards(self, stream: str) -> list[Shard]:
        """Return every shard that the stream itself still has, without those that only the publisher knows.

        Raises: the errors of `list_shards`.
        """
        return await self._list(stream, None)

    async def _list(self, stream: str, after: str | None) -> list[Shard]:
        own = await (self._own_shards_again if self._is_own else partial(shards_listed_by, self._factory))(
            stream, after
        )
        self._is_own[stream] = own is not None
        if own is not None:
            return own
        client = self._kinesis_client()
        listed = await self._call(lambda: client.list_shards(self._names[stream], after))
        if after is None and stream not in self._completely_listed:
            listed = await self._until_complete(stream, listed)
            self._completely_listed.add(stream)
        return listed

    async def _own_shards_again(self, stream: str, after: str | None) -> list[Shard] | None:
        """List the publisher's own shards while the job runs. Any error of the plugin's code is retried like an error of ListShards.

        A StreamNotFoundError is retried too, until the stream counts as deleted.

        Raises: the plugin's error, when the retries are exhausted.
        """
        foreign: list[Exception] = []

        async def listed() -> list[Shard] | None:
            foreign.clear()
            try:
                found = await shards_listed_by(self._factory, stream, after)
            except StreamNotFoundError as error:
                self._check_deleted(stream, error)
                raise
            except RecordPublisherError:
                raise
            except Exception as error:
                foreign.append(error)
                raise TransientError(describe_error(error)) from error
            self._missing_since.pop(stream, None)
            return found

        service = f"{type(self._factory).__name__}.discover"
        try:
            return await call_with_retries(listed, self._policy, service=service)
        except RetriesExhaustedError:
            if foreign:
                raise foreign[0] from None
            raise

    def _check_deleted(self, stream: str, error: StreamNotFoundError) -> None:
        """Raise TransientError until `discover` has said for `DELETED_SECONDS` that a stream which it had listed does not exist."""
        if stream not in self._is_own:
            return
        now = self._clock.monotonic()
        if now - self._missing_since.setdefault(stream, now) < DELETED_SECONDS:
            words = f"{error}; it counts as deleted when `discover` has said so for {DELETED_SECONDS:.0f} s"
            raise TransientError(words) from error

    async def _until_complete(self, stream: str, listed: list[Shard]) -> list[Shard]:
        """List again while open shards are missing. A shard that is found later would be read from its beginning, or not at all (S3)."""
        client = self._kinesis_client()
        for _ in range(COMPLETE_LISTING_TRIES):
            if (unlisted := first_unlisted_range(listed)) is None:
                return listed
            log.info("the listing of %s lacks the shard of hash key %d: listing again", stream, unlisted.start)
            await asyncio.sleep(random.uniform(0.5, 1.5))  # noqa: S311 (jitter)
            listed = await self._call(lambda: client.list_shards(self._names[stream], None))
        if not listed:  # Otherwise a run to the tip would end without reading anything.
            raise RetriesExhaustedError(
                f"ListShards names no shard of {stream}, {COMPLETE_LISTING_TRIES + 1} times in a row"
            )
        if (unlisted := first_unlisted_range(listed)) is not None:
            log.warning(
                "the listing of %s still lacks the shard of hash keys %d to %d: its records are read once it is listed",
                stream,
                unlisted.start,
                unlisted.end,
                extra=log_extra(stream),
            )
        return listed

    async def shard_exists(self, shard: Shard) -> bool | None:
        """Return whether Kinesis still has a shard, according to GetShardIterator.

        Return None if the call fails for another reason than a missing shard, or if the publisher has a source of its own.
        """
        if await self._has_own_source(shard.stream):
            return None
        client, name = self._kinesis_client(), self._names[shard.stream]
        # A stream of another account is found only by its ARN.
        asked = replace(shard, stream_arn=arn_of(name) or shard.stream_arn)
        try:
            await self._call(lambda: client.get_shard_iterator(asked, StartingPosition.trim_horizon()))
        except ResourceNotFoundError:
            return False
        except RecordPublisherError as error:
            log.warning(
                "it cannot be found out whether %s still exists, so it counts as existing: %s",
                shard.key,
                error,
                extra=log_extra(shard.key),
            )
            return None
        return True

    def is_endless(self, stream: str) -> bool:
        """Return whether the stream always has an open shard, as every Kinesis stream does. Call it after the stream was listed.

        A service that reports the end of a shard before its listing does, as DynamoDB Streams, may list the last shard as closed and its
        children later. So a listing without open shards does not prove that the stream has ended.
        """
        is_own = self._is_own.get(stream)
        return is_own is False or (is_own is True and self._factory.ends_open_shards)

    async def server_time_ms(self, stream: str) -> int:
        """Return the service's wall clock (epoch ms, P3), or this machine's clock if the publisher has a source of its own."""
        if await self._has_own_source(stream):
            return self._clock.now_ms()
        client = self._kinesis_client()
        return await self._call(lambda: client.server_time_ms(self._names[stream]))

    async def oldest_retained_ms(self, stream: str) -> int | None:
        """Return the arrival time before which the stream has dropped its records (epoch ms), or None if not known (S5).

        Raises: KinesisError if a call fails.
        """
        if await self._has_own_source(stream):
            return await oldest_retained_of(self._factory, stream)
        retention_ms = await self._fetch_retention_ms(stream)
        return None if retention_ms is None else await self.server_time_ms(stream) - retention_ms

    async def oldest_record(self, shard: Shard) -> OldestRecord | None:
        """Return the oldest record that a shard still has (S5), or None if a publisher with a source of its own does not know.

        Raises: KinesisError if a call fails.
        """
        if await self._has_own_source(shard.stream):
            return await oldest_record_of(self._factory, shard)
        client = self._kinesis_client()
        return await self._call(lambda: read_oldest_record(client, shard))

    async def retention_ms(self, stream: str) -> int | None:
        """Return the retention period of the stream (ms), or None if it is not known or the call fails (A1)."""
        try:
            return await self._fetch_retention_ms(stream)
        except RecordPublisherError as error:
            log.info("cannot read the retention period of %s: %s", stream, error, extra=log_extra(stream))
            return None

    async def tip(self, shard: Shard, position: StartingPosition) -> TipDistance | None:
        """Return how far a position is from the tip of its shard (A2), or None if the publisher has a source of its own.

        Raises: KinesisError if a call fails.
        """
        if await self._has_own_source(shard.stream):
            return None
        return await measure_tip_distance(self._kinesis_client(), shard, position)

    async def close(self) -> None:
        """Close the client, unless the factory owns it."""
        if self._client is not None:
            await self._client.close()

    async def _has_own_source(self, stream: str) -> bool:
        """Return whether the publisher lists the stream itself. This is determined once for each stream."""
        if stream not in self._is_own:
            self._is_own[stream] = await shards_listed_by(self._factory, stream, None) is not None
        return self._is_own[stream]

    async def _fetch_retention_ms(self, stream: str) -> int | None:
        """Return the retention period (ms). Return None, with one warning, if the credentials do not permit DescribeStreamSummary.

        Readers do not need that permission.
        """
        if await self._has_own_source(stream):
            return None
        client = self._kinesis_client()
        try:
            return await self._call(lambda: client.retention_ms(self._names[stream]))
        except FatalKinesisError as error:
            if stream not in self._without_retention:
                self._without_retention.add(stream)
                log.warning(
                    "the retention of %s is not known (%s). So a loss of unread records is only noticed "
                    "when the oldest record of a shard comes after the position of the job",
                    stream,
                    error,
                    extra=log_extra(stream),
                )
            return None

    async def _call(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call with retries.

        Before the first success, retries end early if DNS does not know the endpoint, which may be mistyped, or if their number is set.
        """
        policy = self._policy if self._has_succeeded else self._first_policy
        try:
            result = await call_with_retries(call, policy, needs_few=self._may_be_mistyped)
        except RetriesExhaustedError as error:
            if self._has_succeeded or getattr(error.__cause__, "code", None) != UNREACHABLE:
                raise
            raise RetriesExhaustedError(f"{error}; {self._endpoint_in_words()}") from error.__cause__
        self._has_succeeded = True
        return result

    def _endpoint_in_words(self) -> str:
        if (endpoint := self._properties.value(ENDPOINT)) is not None:
            return f"the endpoint is that of the property '{ENDPOINT.key}', {endpoint}"
        region = kinesis.region_of(self._properties, self._names.values())
        return f"the endpoint is that of the region {region}, or of AWS_ENDPOINT_URL or a profile if they name one"

    def _may_be_mistyped(self, error: TransientError) -> bool:
        return not self._has_succeeded and (kinesis.is_host_unknown(error) or kinesis.speaks_no_tls(error))

    def _kinesis_client(self) -> kinesis.KinesisClient:
        streams = list(self._names.values())
        if self._client is None and isinstance(self._factory, ClientProvider):
            shared = self._factory.shared_client(streams)
            if shared is not None:
                return shared
        if self._client is None:
            self._client = kinesis.KinesisClient(self._properties, streams)
        return self._client


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
        """Return the list of streams for the fetcher. A function is called again at each `flink.shard.discovery.intervalmillis`.

        - `check`: raises an error for streams that the job's publisher cannot read.
        """
        interval_ms = properties.value(DISCOVERY_INTERVAL)
        if self.function is None or interval_ms < 0:
            return StreamList(self._last)
        return StreamList(self._last, lambda: self._look(check), interval_ms / 1000)

    async def _look(self, check: Callable[[Sequence[str]], None]) -> Sequence[str]:
        """Return the current streams. If the list cannot be used, warn once and return the last valid list."""
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
                "the list of streams cannot be used, the job continues with %s: %s", ", ".join(self._last), reason
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
    """Return the streams that the properties give: names, or a function.

    Raises: ConfigurationError unless exactly one of the three properties is set, or if a name is invalid.
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


log = logging.getLogger("recordpublisher.discovery")
T = TypeVar("T")
COMPLETE_LISTING_TRIES = 5
"""How often a first listing that lacks open shards is repeated, about once a second. ListShards becomes consistent within seconds."""
UNREACHABLE = "EndpointConnectionError"


@runtime_checkable
class ClientProvider(Protocol):
    """A publisher factory whose Kinesis client other parts of the job may use. The factory owns and closes it."""

    def shared_client(self, streams: Sequence[str]) -> kinesis.KinesisClient | None:
        """Return the client, or None if the factory does not use Kinesis.

        The client is created at the first call, for these streams (names or ARNs).
        """
