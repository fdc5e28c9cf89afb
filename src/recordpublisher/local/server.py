"""The embedded Kinesis endpoint: one asyncio server on loopback. It keeps its data in memory, and in a folder if one is given."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError

from .api_errors import ApiError
from .clock import Clock, ManualClock
from .faults.injector import Faults
from .faults.kinds import FaultRule
from .http.aiohttp_server import AiohttpServer
from .http.api_requests import ApiRequests
from .http.certificate import Certificate
from .http.http2_server import Http2Server
from .http.request_checks import is_loopback
from .quotas import Quotas
from .requests.streams import CreateStream
from .streams.account import Account, Delays
from .streams.consumers import CONSUMER_LIMIT
from .streams.stream import Stream

if TYPE_CHECKING:
    from .storage.account_storage import AccountStorage


def _open_storage(account: Account, folder: Path) -> "AccountStorage":
    from .storage.account_storage import AccountStorage  # Imported here because it loads SQLite, which is slow.

    return AccountStorage(account, folder)


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
