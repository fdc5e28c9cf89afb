"""Foreign errors in, errors of our tree out: the one place that classifies what the service, the SDK and the network raise."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
import msgspec
import urllib3.exceptions
from aiohttp.http_exceptions import HttpProcessingError
from botocore import exceptions as sdk
from botocore.eventstream import ParserError as FrameError
from botocore.parsers import ResponseParserError

from ..errors import (
    ConfigurationError,
    ExpiredIteratorError,
    FatalKinesisError,
    KinesisError,
    RecordPublisherError,
    ResourceInUseError,
    ResourceNotFoundError,
    ThrottledError,
    TransientError,
)
from ..properties.table import CREDENTIALS_PROVIDER, ENDPOINT
from . import tls as trust
from .advice import advice_for


class TruncatedStreamError(Exception):
    """An event stream ended inside a frame."""


class BrokenAnswerError(Exception):
    """An answer is not HTTP/1.1, or not in a form that was asked for."""


class StreamLostError(Exception):
    """An HTTP/2 stream, or the connection under it, ended before its answer did."""


THROTTLED = {
    "ProvisionedThroughputExceededException", "LimitExceededException", "KMSThrottlingException", "Throttling",
    "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException", "TooManyRequestsException",
    "RequestLimitExceeded", "BandwidthLimitExceeded", "SlowDown", "PriorRequestNotComplete",
}  # fmt: skip
TRANSIENT = {
    "InternalFailure", "InternalFailureException", "InternalServerError", "InternalError", "InternalServiceError",
    "ServiceUnavailable", "ServiceUnavailableException", "RequestTimeout", "RequestTimeoutException", "ExpiredNextTokenException",
}  # fmt: skip
EXACT: dict[str, type[KinesisError]] = {
    "ExpiredIteratorException": ExpiredIteratorError,
    "ResourceInUseException": ResourceInUseError,
    "ResourceNotFoundException": ResourceNotFoundError,
}
_LONGEST_MESSAGE = 500  # proxies and servers answer with pages of HTML
BROKEN = (
    msgspec.DecodeError,
    FrameError,
    ResponseParserError,
    TruncatedStreamError,
    BrokenAnswerError,
    UnicodeDecodeError,
)
NETWORK = (
    sdk.HTTPClientError, sdk.ConnectionError, aiohttp.ClientError, HttpProcessingError, urllib3.exceptions.HTTPError, TimeoutError,
    sdk.IncompleteReadError, EOFError, OSError, StreamLostError,
)  # fmt: skip
"""What the network raises: through the SDK, past it (aiohttp, which reads event streams; urllib3 where a user's own SDK is below), raw."""
NO_CREDENTIALS = (sdk.NoCredentialsError, sdk.PartialCredentialsError, sdk.ProfileNotFound, sdk.NoAuthTokenError)
REFRESH_FAILED = (sdk.CredentialRetrievalError, sdk.MetadataRetrievalError, sdk.TokenRetrievalError)


@contextmanager
def translated(api: str) -> Iterator[None]:
    """Raise what happens inside as an error of our tree, the cause kept; errors of a program (TypeError ...) pass as they are."""
    try:
        yield
    except RecordPublisherError:
        raise
    except Exception as error:
        ours = translate(api, error)
        if ours is None:
            raise
        raise ours from error


@contextmanager
def understood(api: str) -> Iterator[None]:
    """Raise TransientError when what is taken from an answer inside is not in it: somebody on the way wrote it, or cut it."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise TransientError(api, "MalformedAnswer", f"the answer is not as documented: {error!r}") from error


def translate(api: str, error: Exception) -> RecordPublisherError | None:
    """The error of our tree for a foreign one, or None when it is nobody's failure but the program's."""
    if isinstance(error, sdk.ClientError):
        return _from_answer(api, error)
    if isinstance(error, NO_CREDENTIALS):
        return ConfigurationError(CREDENTIALS_PROVIDER.key, None, CREDENTIALS_PROVIDER.valid, reason=f"{api}: {error}")
    if isinstance(error, sdk.EndpointProviderError):
        return ConfigurationError(ENDPOINT.key, None, ENDPOINT.valid, reason=f"{api}: {error}")
    if isinstance(error, (*NETWORK, *REFRESH_FAILED, *BROKEN)):
        return _from_transport(api, error)
    if isinstance(error, sdk.BotoCoreError):
        return FatalKinesisError(api, type(error).__name__, str(error))
    return None


def error_for_code(api: str, code: str, message: str, http_status: int = 0) -> KinesisError:
    """The error for an error code of the service, in an answer or inside an event stream; without a known code the status decides."""
    kind = EXACT.get(code) or _kind_of(code, http_status)
    advice = advice_for(code, kind)
    return kind(api, code or f"HTTP {http_status}", f"{message[:_LONGEST_MESSAGE] or 'no message'}{advice}")


def _kind_of(code: str, http_status: int) -> type[KinesisError]:
    if code in THROTTLED or http_status == 429:
        return ThrottledError
    if (
        code in TRANSIENT or http_status >= 500 or http_status == 408
    ):  # a balancer that gave a kept connection up says 408 first
        return TransientError
    return FatalKinesisError


def _from_answer(api: str, error: sdk.ClientError) -> KinesisError:
    answer = error.response
    details = answer.get("Error", {})
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    # a call to STS on behalf of ours says its own name
    return error_for_code(error.operation_name or api, details.get("Code", ""), details.get("Message", ""), status)


def _from_transport(api: str, error: Exception) -> KinesisError:
    if _is_bad_certificate(error):
        return FatalKinesisError(
            api, "CertificateVerificationFailed", f"{error}; check {ENDPOINT.key} and {trust.WHERE}"
        )
    said = str(error) or ("no answer in time" if isinstance(error, TimeoutError) else "connection lost")
    return TransientError(api, type(error).__name__, said)


def _is_bad_certificate(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError | aiohttp.ClientConnectorCertificateError):
            return True
        inner = getattr(error, "kwargs", {}).get("error")
        error = inner if isinstance(inner, BaseException) else error.__cause__
    return False
