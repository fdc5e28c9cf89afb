"""HttpSnapshots: the snapshots that a running job serves (`run --dashboard`), read by another process."""

from __future__ import annotations

import aiohttp
import msgspec

from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.stream_arns import stream_name

from .server import SNAPSHOT_PATH, UNAVAILABLE, Unavailable
from .snapshot import JobSnapshot

RESPONSE_SECONDS = 10.0


class HttpSnapshots:
    """Reads the shards of one stream, from the URL that the job has logged. Owns nothing."""

    def __init__(self, url: str, stream: str) -> None:
        self._url = url.rstrip("/").removesuffix(SNAPSHOT_PATH) + SNAPSHOT_PATH
        self._stream = stream_name(stream)

    async def snapshot(self) -> JobSnapshot:
        """The job now. Raises: RecordPublisherError when it does not respond, or does not read the stream."""
        try:
            snapshot = msgspec.json.decode(await self._read(), type=JobSnapshot)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise RecordPublisherError(f"no running job serves {self._url}: {reason}") from error
        shards = [each for each in snapshot.shards if each.stream == self._stream]
        streams = sorted({each.stream for each in snapshot.shards})
        if streams and not shards:
            raise RecordPublisherError(f"the job does not read {self._stream!r}; it reads {', '.join(streams)}")
        return msgspec.structs.replace(snapshot, shards=shards)

    async def _read(self) -> bytes:
        timeout = aiohttp.ClientTimeout(total=RESPONSE_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(self._url) as response:
            body = await response.read()
            if response.status == UNAVAILABLE:
                raise RecordPublisherError(msgspec.json.decode(body, type=Unavailable).error)
            response.raise_for_status()
            return body
