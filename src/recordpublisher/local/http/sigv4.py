"""Checks Signature Version 4; only when the endpoint was started with credentials."""

import hashlib
import hmac
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl

from ..api_errors import ApiError

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/(?P<scope>[^,]+), ?"
    r"SignedHeaders=(?P<headers>[^,]+), ?Signature=(?P<signature>[0-9a-f]+)"
)


IN_HEADER = ("Credential", "Signature", "SignedHeaders")
IN_QUERY = ("X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature", "X-Amz-SignedHeaders", "X-Amz-Date")


def check_signature(
    headers: Mapping[str, str], query: str, body: bytes, secrets: Mapping[str, str], method: str = "POST"
) -> None:
    """Raise the service's error for a request that none of `secrets` (by access key id) has signed."""
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
    """Raise for a request that is not signed, is signed twice, or whose signature lacks parts."""
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
