"""BoundedHttpSession: the SDK's HTTP client, with a limit to the size of a response."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Any

import aiohttp
from aiobotocore.awsrequest import AioAWSResponse
from aiobotocore.httpsession import AIOHTTPSession
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError

from .error_mapping import check_response_size


class BoundedHttpSession(AIOHTTPSession):  # type: ignore[misc] # the SDK is untyped
    """Reads bodies itself: the SDK would read one without an end until the deadline, however much that is."""

    async def send(self, request: Any) -> Any:
        """Send a request of the SDK. Raises: as the SDK's client does, MalformedResponseError for a body that is too long."""
        is_stream, request.stream_output = request.stream_output, True  # so that the SDK does not read the body
        response = await super().send(request)
        bounded = _BoundedResponse(response.url, response.status_code, response.headers, response.raw)
        if not is_stream:
            await bounded.content
        return bounded


class _BoundedResponse(AioAWSResponse):  # type: ignore[misc] # the SDK is untyped
    _content: bytes | None

    async def _content_prop(self) -> bytes:
        if self._content is None:
            try:
                check_response_size(self.raw.content_length or 0)
                self._content = await read_body(self.raw.content.iter_any(), self.url)
            except BaseException:
                self.raw.close()
                raise
        return self._content


async def read_body(chunks: AsyncIterable[bytes], url: str) -> bytes:
    """All of a body. Raises: MalformedResponseError when it is too long, and the SDK's errors, so that the SDK tries again."""
    read: list[bytes] = []
    size = 0
    try:
        async for chunk in chunks:
            size += len(chunk)
            check_response_size(size)
            read.append(chunk)
    except TimeoutError as error:
        raise ReadTimeoutError(endpoint_url=url, error=error) from error
    except aiohttp.ClientError as error:
        raise ConnectionClosedError(endpoint_url=url, error=error) from error
    return b"".join(read)
