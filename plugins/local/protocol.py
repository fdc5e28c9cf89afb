"""The wire: AWS JSON 1.1 over HTTP, from a request to the operation and back."""

from collections.abc import Mapping
from email.utils import formatdate
from uuid import uuid4

import msgspec
from aiohttp import web

from . import requests
from .account import Account
from .errors import ApiError
from .operations.subscribing import subscribe_to_shard
from .operations.table import OPERATIONS, decoder
from .push import push
from .signature import check_signature

CONTENT_TYPE = "application/x-amz-json-1.1"
TARGET_PREFIX = "Kinesis_20131202."
MAX_BODY_BYTES = 32 << 20  # 10 MiB of records are 14 MB of base64 text, keys and JSON around them

_decode_subscribe = decoder(requests.SubscribeToShard)


class Front:
    """Owns nothing: it takes requests apart and puts answers together."""

    def __init__(self, account: Account, secrets: Mapping[str, str] | None) -> None:
        self._account = account
        self._secrets = secrets

    def application(self) -> web.Application:
        """Return the aiohttp application that serves the account."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_route("*", "/{tail:.*}", self.handle)
        return app

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        headers = self._headers()
        body = await request.read()
        try:
            operation = self._operation(request, body)
            if operation == "SubscribeToShard":
                subscription = subscribe_to_shard(self._account, _decode_subscribe(body))
                return await push(subscription, request, headers, self._account)
            answer = OPERATIONS[operation](self._account, body)
        except ApiError as error:
            return _error(error, headers)
        except ConnectionAbortedError:
            return _drop(request)
        return web.Response(body=answer, headers={**headers, "Content-Type": CONTENT_TYPE})

    def _operation(self, request: web.Request, body: bytes) -> str:
        """Return the operation's name once nothing stands against calling it."""
        prefix, _, operation = request.headers.get("X-Amz-Target", "").rpartition(".")
        known = operation in OPERATIONS or operation == "SubscribeToShard"
        if request.method != "POST" or prefix + "." != TARGET_PREFIX or not known:
            raise ApiError("UnknownOperationException", f"No such operation here: {operation or request.method}")
        if self._secrets is not None:
            check_signature(request.headers, body, self._secrets)
        self._account.faults.before_call(operation)
        return operation

    def _headers(self) -> dict[str, str]:
        date = formatdate(self._account.clock.now_ms() / 1000, usegmt=True)
        return {"x-amzn-RequestId": str(uuid4()), "Date": date}


def _error(error: ApiError, headers: dict[str, str]) -> web.Response:
    body = msgspec.json.encode({"__type": error.code, "message": error.message})
    return web.Response(status=error.status, body=body, headers={**headers, "Content-Type": CONTENT_TYPE})


def _drop(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)
