"""BoundedHttpSession: the SDK's HTTP client, with a limit to the size of a response."""

from __future__ import annotations

from typing import Any

from aiobotocore.awsrequest import AioAWSResponse
from aiobotocore.httpsession import AIOHTTPSession

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
            self._content = await _read(self.raw)
        return self._content


async def _read(response: Any) -> bytes:
    chunks: list[bytes] = []
    size = 0
    try:
        check_response_size(response.content_length or 0)
        async for chunk in response.content.iter_any():
            size += len(chunk)
            check_response_size(size)
            chunks.append(chunk)
    except BaseException:
        response.close()
        raise
    return b"".join(chunks)
