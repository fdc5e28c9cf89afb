"""Answers HTTP requests of the API, independent of the server that has received them."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from email.utils import formatdate
from os import urandom
from uuid import uuid4

import msgspec

from ..api_errors import ApiError
from ..dispatcher import HTML_PAGE, HtmlPageError, RequestDispatcher
from ..event_writer import ResponseStream, write_events
from ..operations.table import OPERATIONS
from ..streams.account import Account
from .request_checks import RefusedRequestError, Request, Response, check_names, checked_operation
from .wire_formats import JSON, format_of

EVENT_STREAM = "application/vnd.amazon.eventstream"
MAX_BODY_BYTES = 32 << 20  # 10 MiB of records are 14 MB of base64 text, keys and JSON around them

KNOWN = frozenset((*OPERATIONS, "SubscribeToShard"))

OpenStream = Callable[[dict[str, str]], ResponseStream]


class ApiRequests:
    """Answers the requests of an account.

    - `secrets`: the secrets of access keys. Without them every signature is accepted.
    - `is_remote`: whether other machines may reach the endpoint, by any name.
    """

    def __init__(self, account: Account, secrets: Mapping[str, str] | None, is_remote: bool = False) -> None:
        self._is_remote = is_remote
        self._account = account
        self._dispatcher = RequestDispatcher(account)
        self._secrets = secrets

    async def answer(self, request: Request, open_stream: OpenStream) -> Response | None:
        """Answer a request with a response, or with None if the response was written to the stream that `open_stream` has opened.

        `open_stream` receives the headers of that response. Raises: ConnectionAbortedError if the connection must break.
        """
        headers = self._headers()
        wire = JSON
        try:
            wire = format_of(request.headers.get("Content-Type", ""))
            check_names(request.headers, self._is_remote)
            operation = checked_operation(request, KNOWN, self._secrets)
            body = wire.to_json(request.body)
            if operation == "SubscribeToShard":
                subscription = await self._dispatcher.subscribe(body)
                stream = open_stream({**headers, "Content-Type": EVENT_STREAM})
                await write_events(subscription, stream, self._account, wire.frame_from_json)
                return None
            response = await self._dispatcher.call(operation, body)
        except ApiError as error:
            content = msgspec.json.encode({"__type": error.code, "message": error.message})
            return Response(error.status, {**headers, "Content-Type": wire.content_type}, wire.from_json(content))
        except RefusedRequestError as refused:
            return Response(refused.status, {**headers, **refused.headers}, refused.body)
        except HtmlPageError:
            return Response(503, {**headers, "Content-Type": "text/html"}, HTML_PAGE)
        return Response(200, {**headers, "Content-Type": wire.content_type}, wire.from_json(response))

    def _headers(self) -> dict[str, str]:
        date = formatdate(self._account.clock.now_ms() / 1000, usegmt=True)
        return {"x-amzn-RequestId": str(uuid4()), "x-amz-id-2": b64encode(urandom(72)).decode(), "Date": date}
