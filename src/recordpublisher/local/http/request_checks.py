"""What the service refuses before it looks at an input, in its order and its formats: methods, content types, bodies, targets, signatures.

The formats are those of its responses to kinesalite's tests, which were run against it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from html import escape

import msgspec

from ..api_errors import ApiError
from .sigv4 import check_signature
from .wire_formats import CBOR, JSON, WireFormat, format_of, has_cbor

SERVICE = "Kinesis_20131202"
OLD_JSON = "application/json"
MEDIA_TYPES = (JSON.content_type, CBOR.content_type, OLD_JSON)


@dataclass(frozen=True, slots=True)
class Request:
    """A received request; the names of `headers` are compared without case."""

    method: str
    headers: Mapping[str, str]
    body: bytes
    query: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """A whole response."""

    status: int
    headers: dict[str, str]
    body: bytes


class RefusedRequestError(Exception):
    """A request that is answered in a format of its own."""

    def __init__(self, status: int, content_type: str | None, body: bytes) -> None:
        super().__init__(body)
        self.status = status
        self.headers = {} if content_type is None else {"Content-Type": content_type}
        self.body = body


def checked_operation(request: Request, operations: Container[str], secrets: Mapping[str, str] | None) -> str:
    """Return the name of the requested operation. `secrets` are those of access keys; without them every signature is accepted.

    Raises: ApiError for what is answered in the request's format, RefusedRequestError for anything else.
    """
    service, _, operation = request.headers.get("X-Amz-Target", "").partition(".")
    is_known = service == SERVICE and operation in operations
    media_type = _media_type(request)
    if request.method != "POST" or (request.body and media_type not in MEDIA_TYPES):
        raise _in_xml(request, service, operation, secrets)
    if not request.body:
        raise _without_body(media_type, is_known)
    error = _error(request, operation, is_known and media_type != OLD_JSON, secrets)
    if error is None:
        return operation
    if not _is_object(request.body, format_of(media_type)):  # comes before
        error = ApiError("SerializationException", "The body is not an object.")
    raise _in_old_json(error) if media_type == OLD_JSON else error


def _error(request: Request, operation: str, is_known: bool, secrets: Mapping[str, str] | None) -> ApiError | None:
    """The error of an unknown operation or a wrong signature."""
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
    except (ApiError, msgspec.DecodeError, UnicodeDecodeError):
        return False


def _without_body(media_type: str, is_known: bool) -> RefusedRequestError:
    wire = JSON if media_type == JSON.content_type or not has_cbor() else CBOR
    content = msgspec.json.encode({"__type": "SerializationException" if is_known else "UnknownOperationException"})
    return RefusedRequestError(400, wire.content_type, wire.from_json(content))


def _in_old_json(error: ApiError) -> RefusedRequestError:
    content = {"Output": {"__type": f"com.amazon.coral.service#{error.code}"}, "Version": "1.0"}
    return RefusedRequestError(
        404 if error.code == "UnknownOperationException" else 400, OLD_JSON, msgspec.json.encode(content)
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
