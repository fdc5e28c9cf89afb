"""Answers HTTP requests: checks the request, converts the body between formats, and calls the operation."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from html import escape
from importlib.util import find_spec
from ipaddress import ip_address
from os import urandom
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import msgspec

from ..install_commands import install_command
from ..publishers.decoding_errors import UNDECODABLE
from . import event_stream
from .account import Account
from .dispatcher import HTML_PAGE, OPERATIONS, HtmlPageError, RequestDispatcher, ResponseStream, write_events
from .errors import ApiError

EVENT_STREAM = "application/vnd.amazon.eventstream"
MAX_BODY_BYTES = 32 << 20  # 10 MiB of records are 14 MB of base64 text, and keys and JSON come in addition.

KNOWN_OPERATIONS = frozenset((*OPERATIONS, "SubscribeToShard"))

OpenStream = Callable[[dict[str, str]], ResponseStream]

SERVICE = "Kinesis_20131202"


_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/(?P<scope>[^,]+), ?"
    r"SignedHeaders=(?P<headers>[^,]+), ?Signature=(?P<signature>[0-9a-f]+)"
)


IN_HEADER = ("Credential", "Signature", "SignedHeaders")
IN_QUERY = ("X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature", "X-Amz-SignedHeaders", "X-Amz-Date")

CBOR_TYPE = "application/x-amz-cbor-1.1"
TIMESTAMP_TAG = 1
"""The CBOR tag of a time. The service sends whole milliseconds since the epoch, although the tag is for seconds in RFC 8949
(aws-sdk-java-v2 issue 4661).
"""
REFUSED_TAGS = (0, 2, 3, 4, 5, 25, 28, 29, 30, 35, 36, 37, 100, 256, 258, 260, 261, 1004, 43000, 55799)
"""All tags that cbor2 supports, except TIMESTAMP_TAG. They are refused, because some are references to shared values. With these a body
of 288 bytes can become 790 MB.
"""
TIMESTAMPS = frozenset(
    (
        "ApproximateArrivalTimestamp", "ConsumerCreationTimestamp", "FirstReceiveTimestamp", "QueueCreationTimestamp",
        "StreamCreationTimestamp", "Timestamp",
    )
)  # fmt: skip
BLOBS = frozenset(("Data",))
CBOR_MISSING = f"CBOR needs the extra local: {install_command('local')}. Or turn it off: aws.cborEnabled=false in Java"


class ApiRequests:
    """Answers the requests of an account.

    - `secrets`: the secret of each access key. Without them every signature is accepted.
    - `is_remote`: whether other machines may reach the endpoint, under any host name.
    """

    def __init__(self, account: Account, secrets: Mapping[str, str] | None, is_remote: bool = False) -> None:
        self._is_remote = is_remote
        self._account = account
        self._dispatcher = RequestDispatcher(account)
        self._secrets = secrets

    async def answer(self, request: Request, open_stream: OpenStream) -> Response | None:
        """Return the response to a request, or None if the response was written to the stream that `open_stream` has opened.

        `open_stream` receives the headers of that response. Raises: ConnectionAbortedError if a fault breaks the connection.
        """
        headers = self._headers()
        wire = JSON
        try:
            wire = format_of(request.headers.get("Content-Type", ""))
            check_names(request.headers, self._is_remote)
            operation = checked_operation(request, KNOWN_OPERATIONS, self._secrets)
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


OLD_JSON_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class Request:
    """A received request. The names of `headers` are compared without case."""

    method: str
    headers: Mapping[str, str]
    body: bytes
    query: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """A complete response."""

    status: int
    headers: dict[str, str]
    body: bytes


class RefusedRequestError(Exception):
    """The error response to a request that is not in JSON 1.1 or CBOR. Its format depends on the request."""

    def __init__(self, status: int, content_type: str | None, body: bytes) -> None:
        super().__init__(body)
        self.status = status
        self.headers = {} if content_type is None else {"Content-Type": content_type}
        self.body = body


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a listener on that host."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def check_names(headers: Mapping[str, str], is_remote: bool) -> None:
    """Refuse a request that a web page of another site has sent. The site's name may resolve to this machine (DNS rebinding).

    A browser sends in Host the name by which it found the endpoint, and in Origin the site whose page it shows.

    `is_remote`: whether any host name is accepted. Origin is checked in any case.

    Raises: ApiError if the request is refused.
    """
    host, origin = headers.get("Host"), headers.get("Origin")
    if host is not None and not is_remote and not _is_address(name := _name_in(f"//{host}")) and not _is_local(name):
        text = f"The embedded endpoint has no name {host}: use its address, or serve it with --allow-remote."
        raise ApiError("AccessDeniedException", text, 403)
    if origin is not None and not _is_local(_name_in(origin)):
        raise ApiError(
            "AccessDeniedException", f"The embedded endpoint does not answer requests from pages of {origin}.", 403
        )


def _name_in(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_local(name: str) -> bool:
    return is_loopback(name) or name.endswith(".localhost")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def checked_operation(request: Request, operations: Container[str], secrets: Mapping[str, str] | None) -> str:
    """Return the name of the requested operation.

    `secrets`: the secret of each access key; without them every signature is accepted.

    Raises: ApiError if the request must be refused; RefusedRequestError if it must be refused in another format than JSON 1.1 or CBOR.
    """
    service, _, operation = request.headers.get("X-Amz-Target", "").partition(".")
    is_known = service == SERVICE and operation in operations
    media_type = _media_type(request)
    if request.method != "POST" or (request.body and media_type not in MEDIA_TYPES):
        raise _in_xml(request, service, operation, secrets)
    if not request.body:
        raise _without_body(media_type, is_known)
    error = _error(request, operation, is_known and media_type != OLD_JSON_TYPE, secrets)
    if error is None:
        return operation
    if not _is_object(request.body, format_of(media_type)):  # The service checks this before it looks for other errors.
        error = ApiError("SerializationException", "The body is not an object.")
    raise _in_old_json(error) if media_type == OLD_JSON_TYPE else error


def _error(request: Request, operation: str, is_known: bool, secrets: Mapping[str, str] | None) -> ApiError | None:
    """Return the error of an unknown operation or a wrong signature, or None if there is none."""
    if not is_known:
        return ApiError("UnknownOperationException", f"No such operation here: {operation}")
    try:
        if secrets is not None:
            check_signature(request.headers, request.query, request.body, secrets)
    except ApiError as error:
        return error
    return None


def _media_type(request: Request) -> str:
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _is_object(body: bytes, wire: WireFormat) -> bool:
    try:
        return isinstance(msgspec.json.decode(wire.to_json(body)), dict)
    except (ApiError, *UNDECODABLE):
        return False


def _without_body(media_type: str, is_known: bool) -> RefusedRequestError:
    wire = JSON if media_type == JSON.content_type or not is_cbor_installed() else CBOR
    content = msgspec.json.encode({"__type": "SerializationException" if is_known else "UnknownOperationException"})
    return RefusedRequestError(400, wire.content_type, wire.from_json(content))


def _in_old_json(error: ApiError) -> RefusedRequestError:
    content = {"Output": {"__type": f"com.amazon.coral.service#{error.code}"}, "Version": "1.0"}
    return RefusedRequestError(
        404 if error.code == "UnknownOperationException" else 400, OLD_JSON_TYPE, msgspec.json.encode(content)
    )


def _in_xml(request: Request, service: str, operation: str, secrets: Mapping[str, str] | None) -> RefusedRequestError:
    try:
        if secrets is not None:
            check_signature(request.headers, request.query, request.body, secrets, method=request.method)
    except ApiError as error:
        return _xml(403, error.code, error.message)
    if request.method == "POST" and service and operation:
        return _xml(404, "UnknownOperationException")
    return _xml(403, "AccessDeniedException", "Unable to determine service/operation name to be authorized")


def _xml(status: int, code: str, message: str | None = None) -> RefusedRequestError:
    content = (
        f"<{code}/>\n"
        if message is None
        else f"<{code}>\n  <Message>{escape(message, quote=False)}</Message>\n</{code}>\n"
    )
    return RefusedRequestError(status, None, content.encode())


def check_signature(
    headers: Mapping[str, str], query: str, body: bytes, secrets: Mapping[str, str], method: str = "POST"
) -> None:
    """Raise the service's error if the signature of a request is missing or wrong. `secrets`: the secret of each access key id."""
    _check_complete(headers, dict(parse_qsl(query, keep_blank_values=True)))
    found = _AUTHORIZATION.fullmatch(headers.get("Authorization", ""))
    if found is None:
        raise ApiError(
            "InvalidSignatureException", "The embedded endpoint accepts signatures only in the Authorization header."
        )
    secret = secrets.get(found["key"])
    if secret is None:
        raise ApiError("UnrecognizedClientException", "The security token included in the request is invalid.")
    expected = _sign(headers, body, found["headers"].split(";"), found["scope"], secret, method)
    if not hmac.compare_digest(expected, found["signature"]):
        raise ApiError(
            "InvalidSignatureException",
            "The request signature we calculated does not match the signature you provided. Check your AWS Secret "
            "Access Key and signing method. Consult the service documentation for details.",
        )


def _check_complete(headers: Mapping[str, str], query: Mapping[str, str]) -> None:
    """Raise an error if the request is not signed, is signed twice, or has an incomplete signature."""
    header = headers.get("Authorization")
    if header is not None and IN_QUERY[0] in query:
        raise ApiError(
            "InvalidSignatureException",
            "Found both 'X-Amz-Algorithm' as a query-string param and 'Authorization' as HTTP header.",
        )
    if header is None and IN_QUERY[0] not in query:
        raise ApiError("MissingAuthenticationTokenException", "Missing Authentication Token")
    missing = _missing_in_query(query) if header is None else _missing_in_header(header, headers)
    if missing:
        raise ApiError("IncompleteSignatureException", missing)


def _missing_in_query(query: Mapping[str, str]) -> str:
    lines = [f"AWS query-string parameters must include '{name}'." for name in IN_QUERY if not query.get(name)]
    return " ".join([*lines, "Re-examine the query-string parameters."]) if lines else ""


def _missing_in_header(header: str, headers: Mapping[str, str]) -> str:
    given = dict(part.partition("=")[::2] for part in re.split(r"[, ]+", header)[1:])
    lines = [f"Authorization header requires '{name}' parameter." for name in IN_HEADER if not given.get(name)]
    if "X-Amz-Date" not in headers and "Date" not in headers:
        lines.append("Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header.")
    return " ".join([*lines, f"Authorization={header}"]) if lines else ""


def _sign(headers: Mapping[str, str], body: bytes, signed: list[str], scope: str, secret: str, method: str) -> str:
    canonical_headers = "".join(f"{name}:{' '.join(headers.get(name, '').split())}\n" for name in signed)
    payload_hash = hashlib.sha256(body).hexdigest()
    canonical = f"{method}\n/\n\n{canonical_headers}\n{';'.join(signed)}\n{payload_hash}"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    to_sign = f"AWS4-HMAC-SHA256\n{headers.get('X-Amz-Date', '')}\n{scope}\n{digest}"
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, to_sign.encode(), "sha256").hexdigest()


def is_cbor_installed() -> bool:
    """Return whether the extra that CBOR needs is installed."""
    return find_spec("cbor2") is not None


def _json_of_cbor(body: bytes) -> bytes:
    """Return a request's body in JSON. Raises: ApiError if the body is not CBOR."""
    import cbor2

    if not body:
        return body
    decoders = {**dict.fromkeys(REFUSED_TAGS, _refuse_tag), TIMESTAMP_TAG: lambda value, _: value / 1000}
    try:
        decoded = cbor2.loads(body, tag_hook=_refuse_tag, semantic_decoders=decoders)
        return msgspec.json.encode(decoded)  # Bytes become base64 text.
    except (cbor2.CBORDecodeError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise ApiError("SerializationException", f"The body cannot be used as CBOR: {error}") from error


def _refuse_tag(*_: Any) -> Any:
    raise ValueError(f"only the tag {TIMESTAMP_TAG} is allowed")


def _cbor_of_json(body: bytes) -> bytes:
    """Return a response's body in CBOR. An empty body stays empty, and a body that a fault has cut is returned unchanged."""
    import cbor2

    try:
        return cbor2.dumps(_with_cbor_types(msgspec.json.decode(body)))
    except msgspec.DecodeError:
        return body


def _cbor_frame(frame: bytes) -> bytes:
    """Return a frame with its payload in CBOR. A frame that a fault has damaged is returned unchanged."""
    parsed = event_stream.parse(frame)
    if parsed is None:
        return frame
    headers, payload = parsed
    return event_stream.frame(_cbor_of_json(payload), *{**headers, ":content-type": CBOR_TYPE}.items())


def _with_cbor_types(value: Any, name: str = "") -> Any:
    import cbor2

    if isinstance(value, dict):
        return {key: _with_cbor_types(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_cbor_types(each, name) for each in value]
    if name in BLOBS:
        return b64decode(value)
    if name in TIMESTAMPS:
        return cbor2.CBORTag(TIMESTAMP_TAG, round(value * 1000))
    return value


@dataclass(frozen=True, slots=True)
class WireFormat:
    """A format of request and response bodies. Its functions convert requests to JSON, and responses and frames of subscriptions from
    JSON.
    """

    content_type: str
    to_json: Callable[[bytes], bytes]
    from_json: Callable[[bytes], bytes]
    frame_from_json: Callable[[bytes], bytes]


def _same(body: bytes) -> bytes:
    return body


JSON = WireFormat("application/x-amz-json-1.1", _same, _same, _same)


CBOR = WireFormat(CBOR_TYPE, _json_of_cbor, _cbor_of_json, _cbor_frame)
MEDIA_TYPES = (JSON.content_type, CBOR.content_type, OLD_JSON_TYPE)


def format_of(content_type: str) -> WireFormat:
    """Return the format of a request's body and of its response. Raises: ApiError for CBOR if its extra is not installed."""
    if content_type.partition(";")[0].strip().lower() != CBOR_TYPE:
        return JSON
    if not is_cbor_installed():
        raise ApiError("SerializationException", CBOR_MISSING)
    return CBOR
