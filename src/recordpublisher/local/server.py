"""The embedded endpoint as a server on loopback: `LocalKinesis` in asyncio, and `serve_in_thread` in synchronous code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, Self, TypedDict, TypeVar, Unpack

import msgspec

from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError

from .account import Account, Delays, Quotas
from .api_errors import ApiError
from .clock import Clock, ManualClock
from .faults import FaultRule, Faults
from .http_requests import ApiRequests, is_loopback
from .http_server import AiohttpServer, Certificate, Http2Server
from .requests import CreateStream
from .stream import CONSUMER_LIMIT, Stream

if TYPE_CHECKING:
    from .storage import AccountStorage


P = ParamSpec("P")
T = TypeVar("T")


class LocalKinesis:
    """Owns the listening socket and the account behind it, from `start` to `close` (or as `async with`).

    - `streams`: shard counts by stream name.
    - `credentials`: secrets by access key id. Without it every signature is accepted; with it a request must be signed by one of them.
    - `quotas`: rate limits, which are off unless given.
    - `clock`: the endpoint's only time. Iterators, heartbeats, retention and the Date header follow it.
    - `consumer_limit`: number of consumers that a stream may have.
    - `faults`: rules, as text or as FaultRule, by which calls and frames fail, drawn with `seed`.
    - `http2`: serve HTTP/2 as well. Needs the extra local.
    - `tls`: serve HTTPS, with a certificate that is created here (`certificate_file`). Needs the extra local.
    - `data`: a folder in which streams, records, consumers and tags survive a restart. A stream that it already has takes precedence over
      `streams`.

    Raises: ConfigurationError if other machines can reach the host, a stream or a rule is not valid, HTTP/2 or TLS lacks the extra, or the
    folder cannot be used.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        streams: Mapping[str, int] | None = None,
        *,
        clock: Clock | None = None,
        quotas: Quotas | None = None,
        credentials: Mapping[str, str] | None = None,
        delays: Delays | None = None,
        region: str = "us-east-1",
        consumer_limit: int = CONSUMER_LIMIT,
        allow_remote: bool = False,
        faults: str | Sequence[FaultRule] = (),
        seed: int = 0,
        http2: bool = False,
        tls: bool = False,
        data: Path | str | None = None,
    ) -> None:
        if not is_loopback(host) and not allow_remote:
            valid = "a loopback address such as 127.0.0.1; others with allow_remote"
            raise ConfigurationError("host", host, valid, reason="other machines could reach it")
        self.host = host
        self.port = port
        self.region = region
        self._credentials = credentials
        self.clock = clock or SystemClock()
        self.account = Account(self.clock, region, delays or Delays(), quotas, consumer_limit)
        requests = ApiRequests(self.account, credentials, allow_remote)
        self._certificate = Certificate(host) if tls else None
        self._server = (Http2Server if http2 else AiohttpServer)(requests, self._certificate)
        self._storage = None if data is None else _open_storage(self.account, Path(data))
        for name, shard_count in (streams or {}).items():
            if self._storage is None or name not in self.account.streams():
                self.create_stream(name, shard_count)
        self.account.faults.start_random(faults, seed)
        self.account.faults.on_plan(self.account.wake_all)
        if isinstance(self.clock, ManualClock):
            self.clock.on_advance(self.account.wake_all)

    @property
    def url(self) -> str:
        """The value for `aws.endpoint`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self._certificate is None else 'https'}://{host}:{self.port}"

    @property
    def certificate_file(self) -> Path | None:
        """The file that clients must trust, for example as AWS_CA_BUNDLE; None without TLS. `close` deletes it."""
        return None if self._certificate is None else self._certificate.file

    @property
    def faults(self) -> Faults:
        """The endpoint's faults, with which tests plan faults."""
        return self.account.faults

    def stream(self, name: str) -> Stream:
        """Return the stream of that name, to inspect it or to put records into it directly."""
        return self.account.find(name)

    def create_stream(self, name: str, shard_count: int = 1) -> Stream:
        """Add a stream. Raises: ConfigurationError if Kinesis does not allow the name or number, or if the name is taken."""
        try:
            msgspec.convert({"StreamName": name, "ShardCount": shard_count}, CreateStream)
            stream = self.account.create_stream(name, shard_count)
        except (msgspec.ValidationError, ApiError) as error:
            raise ConfigurationError("stream", f"{name}:{shard_count}", "NAME:SHARDS", reason=str(error)) from error
        self.account.changed()
        return stream

    def properties(self) -> dict[str, str]:
        """Return the properties with which a job connects to this endpoint."""
        key, secret = next(iter((self._credentials or {"local": "local"}).items()))
        return {
            "aws.region": self.region,
            "aws.endpoint": self.url,
            "aws.credentials.provider": "BASIC",
            "aws.credentials.provider.basic.accesskeyid": key,
            "aws.credentials.provider.basic.secretkey": secret,
        }

    async def start(self) -> Self:
        """Start to listen. Raises: ConfigurationError if the port is not available."""
        try:
            self.port = await self._server.start(self.host, self.port)
        except (OSError, OverflowError) as error:
            raise ConfigurationError("port", self.port, "a free port, or 0 for any", reason=str(error)) from error
        return self

    async def close(self) -> None:
        """Stop listening and end every subscription."""
        await self._server.close()
        if self._storage is not None:
            self._storage.close()
        if self._certificate is not None:
            self._certificate.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


@contextmanager
def serve_in_thread(
    host: str = "127.0.0.1", port: int = 0, streams: Mapping[str, int] | None = None, **options: Unpack[ServerOptions]
) -> Iterator[LocalKinesisThread]:
    """Serve while the `with` block runs. The options are the settings of `LocalKinesis`."""
    endpoint = LocalKinesis(host, port, streams, **options)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="local-kinesis", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(endpoint.start(), loop).result(timeout=30)
        yield LocalKinesisThread(endpoint, loop)
    finally:
        asyncio.run_coroutine_threadsafe(endpoint.close(), loop).result(timeout=30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=30)
        loop.close()


class LocalKinesisThread:
    """Owns a thread, its event loop and the endpoint that runs there."""

    def __init__(self, endpoint: LocalKinesis, loop: asyncio.AbstractEventLoop) -> None:
        self.endpoint = endpoint
        self._loop = loop

    @property
    def url(self) -> str:
        """The value for `aws.endpoint`."""
        return self.endpoint.url

    @property
    def port(self) -> int:
        """The port that the endpoint listens on."""
        return self.endpoint.port

    def properties(self) -> dict[str, str]:
        """Return the properties with which a job connects to this endpoint."""
        return self.endpoint.properties()

    def create_stream(self, name: str, shard_count: int = 1) -> LocalStream:
        """Add a stream. Raises: ConfigurationError if Kinesis does not allow the name or number, or if the name is taken."""
        self.call(self.endpoint.create_stream, name, shard_count)
        return LocalStream(self, name)

    def stream(self, name: str) -> LocalStream:
        """Return the stream of that name, to put records into it directly."""
        return LocalStream(self, name)

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function on the endpoint's event loop. The data model, the faults and a ManualClock must be used in that thread only."""

        async def run() -> T:
            return function(*args, **kwargs)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(timeout=30)


class LocalStream:
    """A stream of an endpoint that runs in a thread. It puts records without a Kinesis client."""

    def __init__(self, served: LocalKinesisThread, name: str) -> None:
        self.name = name
        self._served = served
        self._record_count = 0

    def put(self, *payloads: object, key: str | None = None) -> None:
        """Put a record for each payload: bytes unchanged, text as UTF-8, anything else as JSON.

        `key` is the partition key of all records. Without it each record has a key of its own, which spreads the records over the shards.
        """
        encoded = [_encode(payload) for payload in payloads]
        self._served.call(self._put_all, encoded, key)

    def split(self, shard_id: str) -> tuple[str, ...]:
        """Split a shard in the middle of its hash range, and return the ids of its children. Raises: ApiError if it is closed."""
        return self._served.call(lambda: self._served.endpoint.stream(self.name).split(shard_id))

    def merge(self, shard_id: str, adjacent_shard_id: str) -> str:
        """Merge a shard and the next one, and return the child's id. Raises: ApiError if they are not adjacent, or if one is closed."""
        return self._served.call(lambda: self._served.endpoint.stream(self.name).merge(shard_id, adjacent_shard_id))

    def _put_all(self, payloads: list[bytes], key: str | None) -> None:
        stream = self._served.endpoint.stream(self.name)
        for payload in payloads:
            stream.put(payload, f"key-{self._record_count}" if key is None else str(key))
            self._record_count += 1


def _open_storage(account: Account, folder: Path) -> AccountStorage:
    from .storage import AccountStorage  # Imported here because it loads SQLite, which is slow.

    return AccountStorage(account, folder)


def _encode(payload: object) -> bytes:
    if isinstance(payload, bytes):
        return payload
    return payload.encode() if isinstance(payload, str) else msgspec.json.encode(payload)


class ServerOptions(TypedDict, total=False):
    """The settings of `LocalKinesis` that `serve_in_thread` accepts."""

    clock: Clock | None
    quotas: Quotas | None
    credentials: Mapping[str, str] | None
    delays: Delays | None
    region: str
    consumer_limit: int
    allow_remote: bool
    faults: str | Sequence[FaultRule]
    seed: int
    http2: bool
    tls: bool
    data: Path | str | None
