"""What the service refuses before it looks at an input: methods, content types, bodies, targets and signatures.

The order of the checks and the formats of the errors are the service's: kinesalite's tests, which were run against it, recorded them.
"""

import hashlib
import hmac
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from html import escape
from ipaddress import ip_address
from urllib.parse import parse_qsl, urlsplit

import msgspec

from recordpublisher.publishers.undecodable import UNDECODABLE

from ..api_errors import ApiError
from .wire_formats import CBOR, JSON, WireFormat, format_of, has_cbor

SERVICE = "Kinesis_20131202"
OLD_JSON = "application/json"
MEDIA_TYPES = (JSON.content_type, CBOR.content_type, OLD_JSON)


@dataclass(frozen=True, slots=True)
class Request:
    """A received request. The names of `headers` are compared without case."""

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
    """Raised for a request that is answered in a format of its own."""

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
    """Refuse requests of web pages of other sites, whose names may lead to this machine (DNS rebinding).

    A browser sends in Host the name by which it found the endpoint, and in Origin the site whose page it shows. `is_remote`: the endpoint
    may have any name; pages of other sites are still refused. Raises: ApiError if the request is refused.
    """
    host, origin = headers.get("Host"), headers.get("Origin")
    if host is not None and not is_remote and not _is_address(name := _name_in(f"//{host}")) and not _is_local(name):
        text = f"The embedded endpoint has no name {host}: use its address, or serve it with --allow-remote."
        raise ApiError("AccessDeniedException", text, 403)
    if origin is not None and not _is_local(_name_in(origin)):
        raise ApiError("AccessDeniedException", f"The embedded endpoint serves no page of {origin}.", 403)


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

    `secrets` are the secrets of access keys; without them every signature is accepted.

    Raises: ApiError for an error in the request's format; RefusedRequestError for an error in another format.
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
    if not _is_object(request.body, format_of(media_type)):  # the service checks this before the other errors
        error = ApiError("SerializationException", "The body is not an object.")
    raise _in_old_json(error) if media_type == OLD_JSON else error


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


_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/(?P<scope>[^,]+), ?"
    r"SignedHeaders=(?P<headers>[^,]+), ?Signature=(?P<signature>[0-9a-f]+)"
)


IN_HEADER = ("Credential", "Signature", "SignedHeaders")
IN_QUERY = ("X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature", "X-Amz-SignedHeaders", "X-Amz-Date")


def check_signature(
    headers: Mapping[str, str], query: str, body: bytes, secrets: Mapping[str, str], method: str = "POST"
) -> None:
    """Raise the service's error if none of `secrets` (by access key id) has signed the request."""
    _check_complete(headers, dict(parse_qsl(query, keep_blank_values=True)))
    found = _AUTHORIZATION.fullmatch(headers.get("Authorization", ""))
    if found is None:
        raise ApiError("InvalidSignatureException", "Only signatures in the Authorization header are known here.")
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
