"""Reads the snapshots that a running job serves (`run --dashboard`), from another process."""

from collections.abc import Sequence

import aiohttp
import msgspec

from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.password_masking import mask_passwords
from recordpublisher.publishers.stream_arns import stream_name

from ..lag.job_snapshot import JobSnapshot
from .server import SNAPSHOT_PATH, UNAVAILABLE, Unavailable

RESPONSE_SECONDS = 10.0


class HttpSnapshots:
    """Reads the shards of some streams, from the URL that the job has logged. Owns no connection."""

    def __init__(self, url: str, streams: Sequence[str]) -> None:
        url = url if "://" in url or ":" not in url else f"http://{url}"
        self._url = url.rstrip("/").removesuffix(SNAPSHOT_PATH) + SNAPSHOT_PATH
        self._streams = [stream_name(stream) for stream in streams]

    async def snapshot(self) -> JobSnapshot:
        """Return the current state of the job. Raises: RecordPublisherError if it does not respond, or does not read the streams."""
        try:
            snapshot = msgspec.json.decode(await self._read(), type=JobSnapshot)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            reason = str(error) or type(error).__name__
            words = f"no running job serves {self._url}: {reason}"
            # The reason may have the URL too. Without an @ it has no password: an invalid port must not be masked.
            raise RecordPublisherError(mask_passwords(words) if "@" in words else words) from error
        shards = [shard for shard in snapshot.shards if shard.stream in self._streams]
        served = sorted({shard.stream for shard in snapshot.shards})
        if served and not shards:
            asked = ", ".join(map(repr, self._streams))
            raise RecordPublisherError(f"the job does not read {asked}; it reads {', '.join(served)}")
        return msgspec.structs.replace(snapshot, shards=shards)

    async def _read(self) -> bytes:
        timeout = aiohttp.ClientTimeout(total=RESPONSE_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(self._url) as response:
            body = await response.read()
            if response.status == UNAVAILABLE:
                raise RecordPublisherError(msgspec.json.decode(body, type=Unavailable).error)
            response.raise_for_status()
            return body
