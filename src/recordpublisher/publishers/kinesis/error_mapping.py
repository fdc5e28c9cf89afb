"""Maps every error of the service, the network and the AWS SDK to a class of `errors.py`.

`translate_errors` maps errors that were raised, and `error_for_code` maps error codes in responses.
"""

import difflib
import errno
import functools
import json
import re
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from ..decoding_errors import UNDECODABLE
from ..errors import (
    NOT_TLS,
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
from ..properties.reading_properties import (
    ACCESS_KEY_ID,
    CREDENTIALS_PROVIDER,
    ENDPOINT,
    INITIAL_POSITION,
    REGION,
    SECRET_KEY,
)

T = TypeVar("T")


@contextmanager
def translate_errors(api: str) -> Iterator[None]:
    """Raise the errors of the `with` block as classes of `errors.py`, with their cause.

    Programming errors (such as TypeError) are not changed.
    """
    try:
        yield
    except RecordPublisherError:
        raise
    except Exception as error:
        ours = translate(api, error)
        if ours is None:
            raise
        raise ours from error


def translate(api: str, error: Exception) -> RecordPublisherError | None:
    """Return the error as a class of `errors.py`, or None if it is a programming error."""
    if isinstance(error, (*NETWORK, *BROKEN_RESPONSE)):
        return error_of_transport(api, error)
    # If the SDK was not imported, the error cannot come from it, and it need not be loaded here.
    return None if "botocore" not in sys.modules else _translate_sdk_error(api, error)


MOST_FOREIGN_RESPONSES = 3
"""How many responses that are not of Kinesis prove that an endpoint is another server, if none was of Kinesis.

A single such response may come from a proxy.
"""


class EndpointCheck:
    """Translates the errors of one endpoint's calls, and detects an endpoint that is another web server, such as the user's own.

    Once an endpoint has answered like Kinesis, it counts as Kinesis. If a proxy answers a later call, the call is retried.
    """

    def __init__(self) -> None:
        self._is_kinesis = False
        self._foreign = 0

    @contextmanager
    def translate_errors(self, api: str) -> Iterator[None]:
        """Do the same as the function `translate_errors`. Raises: FatalKinesisError if the endpoint is not Kinesis."""
        try:
            with translate_errors(api):
                yield
        except TransientError as error:
            if isinstance(error.__cause__, ForeignResponseError) and not self._is_kinesis:
                self._foreign += 1
                if self._foreign >= MOST_FOREIGN_RESPONSES:
                    raise FatalKinesisError(api, "NotKinesis", f"{error.__cause__}; {NOT_KINESIS}") from error
            raise
        self._is_kinesis = True


def refuse_foreign(headers: Mapping[str, str], body: str) -> None:
    """Raise an error if a response of status 200 comes from another server. Call it if the response has no field of the API.

    - `headers`: the response's headers, with lower-case names.
    - `body`: the response's body, for the message.

    Raises: ForeignResponseError if the headers are those of a web page or of another API.
    """
    # Other servers that emulate Kinesis may lack these headers, so the headers alone decide nothing.
    if "x-amzn-requestid" in headers or not headers.get("content-type", "").startswith(("text/", "application/json")):
        return
    text = "an HTML page" if body.lstrip().startswith("<") else repr(body[:80])
    raise ForeignResponseError(f"the response is {text}")


@contextmanager
def reject_malformed(api: str) -> Iterator[None]:
    """Raise TransientError if a field that the `with` block reads is missing or has a wrong type."""
    try:
        yield
    except RecordPublisherError:
        raise
    # Only a proxy writes such a response, or truncates one, so a retry may get the service's own.
    # The SDK's parser raises RuntimeError if a time is outside the range of a date.
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise TransientError(
            api,
            "MalformedResponse",
            f"the response is not as documented, because a field is missing or not valid: {error!r}",
        ) from error


async def retry_with_new_token(call: Callable[[], Awaitable[T]], renew: Callable[[], Awaitable[bool]]) -> T:
    """Make a call. Make it once more if the service has refused its credentials, and another attempt may succeed.

    Another attempt may succeed in two cases:

    - The service refused the time of the signature.
    - The service refused the token as expired, and the provider now has another token.

    - `renew`: asks the provider again. It returns whether the call would now be signed with other keys.
    """
    # A token may be refused although it is valid by its date, for example after a session was revoked.
    try:
        return await call()
    except FatalKinesisError as error:
        is_expired_token = error.code in ("ExpiredTokenException", "ExpiredToken")
        if not _is_time_refused(error) and not (is_expired_token and await renew()):
            raise
    return await call()


def _is_time_refused(error: FatalKinesisError) -> bool:
    # The machine may have slept between the signature of a request and its arrival, for example while a connection was opened. A signature
    # is valid for five minutes. If the clock itself is wrong, the second call fails in the same way.
    is_about_time = "Signature expired" in str(error) or "Signature not yet current" in str(error)
    return is_about_time or error.code in ("RequestExpired", "RequestTimeTooSkewed")


# --- errors in responses ------------------------------------------------------------------------------------------------------------

THROTTLED = {
    "ProvisionedThroughputExceededException", "LimitExceededException", "KMSThrottlingException", "Throttling",
    "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException", "TooManyRequestsException",
    "RequestLimitExceeded", "BandwidthLimitExceeded", "SlowDown", "PriorRequestNotComplete",
}  # fmt: skip
TRANSIENT = {
    "InternalFailure", "InternalFailureException", "InternalServerError", "InternalError", "InternalServiceError",
    "ServiceUnavailable", "ServiceUnavailableException", "RequestTimeout", "RequestTimeoutException", "ExpiredNextTokenException",
}  # fmt: skip
ERRORS_BY_CODE: dict[str, type[KinesisError]] = {
    "ExpiredIteratorException": ExpiredIteratorError,
    "ResourceInUseException": ResourceInUseError,
    "ResourceNotFoundException": ResourceNotFoundError,
}
_LONGEST_MESSAGE = 500  # Proxies and servers may respond with whole HTML pages.


def error_for_code(api: str, code: str, message: str, http_status: int = 0) -> KinesisError:
    """Return the error for an error code of the service, in a response or an event stream.

    If the code is unknown, the HTTP status decides.
    """
    kind = ERRORS_BY_CODE.get(code) or _kind_of(code, http_status)
    if kind is FatalKinesisError and code in ("", str(http_status)):
        # Every error of the service has a code, so another server has answered, with its own text or page.
        text = "an HTML page" if message.lstrip().startswith("<") else message[:_LONGEST_MESSAGE] or "no message"
        return kind(api, code or f"HTTP {http_status}", f"{text}; {NOT_KINESIS}")
    hint = _OF_THE_FUTURE if "currentTimestampInMillis" in message else hint_for(code, kind)
    return kind(api, code or f"HTTP {http_status}", f"{message[:_LONGEST_MESSAGE] or 'no message'}{hint}")


def _kind_of(code: str, http_status: int) -> type[KinesisError]:
    if code in THROTTLED or http_status == 429:
        return ThrottledError
    # A web server that is not Kinesis answers 501 to a POST. A load balancer never does so for a service that is unreachable.
    if code == "501":
        return FatalKinesisError
    # A load balancer sends 408 before it closes an idle connection, so the call can be repeated.
    if code in TRANSIENT or http_status >= 500 or http_status == 408:
        return TransientError
    return FatalKinesisError


def hint_for(code: str, kind: type[KinesisError]) -> str:
    """Return what a person can do about a fatal error code, as the end of a message. Return "" for an error that is retried.

    - `kind`: the class of the error.
    """
    return f"; {HINTS.get(code, DEFAULT_HINT)}" if issubclass(kind, FatalKinesisError) else ""


class NoCredentialsError(ConfigurationError):
    """Raised if no AWS credentials were found."""

    def __init__(self, text: str = "") -> None:
        super().__init__("AWS credentials", None, TO_HAVE_CREDENTIALS)
        self.args = (text or NO_CREDENTIALS_FOUND,)


TO_HAVE_CREDENTIALS = (
    f"set these variables, or run `aws configure` or `aws sso login`, or set {ACCESS_KEY_ID.key} and {SECRET_KEY.key}, or "
    f"'{CREDENTIALS_PROVIDER.key}' to ENV_VAR, PROFILE, ASSUME_ROLE or WEB_IDENTITY_TOKEN with its keys"
)
NO_CREDENTIALS_FOUND = f"""No AWS credentials found. Looked in:
- the environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
- the profile (AWS_PROFILE, else default) of ~/.aws/credentials and ~/.aws/config
- the metadata of the container or instance
{CREDENTIALS_PROVIDER.key}, if it is set, says which of these alone.
{TO_HAVE_CREDENTIALS[0].upper()}{TO_HAVE_CREDENTIALS[1:]}."""
_CREDENTIALS = f"check the credentials ({CREDENTIALS_PROVIDER.key} and its keys)"
_ACCESS = "allow this action for the identity in use (IAM policy, resource policy of the stream or consumer)"
_TRUSTED_CAS = "the trusted CA file (AWS_CA_BUNDLE, or ca_bundle of the SDK's profile)"
_CLOCK = "this machine's clock is wrong by more than five minutes: set it"
HINTS = {
    "AccessDeniedException": _ACCESS,
    "AccessDenied": _ACCESS,
    "UnrecognizedClientException": f"the access key is unknown: {_CREDENTIALS}",
    "InvalidClientTokenId": f"the access key is unknown: {_CREDENTIALS}",
    "MissingAuthenticationTokenException": f"the request was not signed: {_CREDENTIALS}",
    "IncompleteSignature": f"the signature is not complete: {_CREDENTIALS}",
    "InvalidSignatureException": f"the secret key is wrong, or this machine's clock is off: {_CREDENTIALS}",
    "SignatureDoesNotMatch": f"the secret key is wrong, or this machine's clock is off: {_CREDENTIALS}",
    "RequestExpired": _CLOCK,
    "RequestTimeTooSkewed": _CLOCK,
    "ExpiredTokenException": f"the session token has expired: {_CREDENTIALS}, or use a provider that renews them",
    "ExpiredToken": f"the session token has expired: {_CREDENTIALS}, or use a provider that renews them",
    "OptInRequired": "this account must subscribe to Kinesis in this region first",
    "KMSAccessDeniedException": "allow kms:Decrypt to read, or kms:GenerateDataKey to write, on the stream's key for the identity in use",
    "KMSDisabledException": "enable the stream's KMS key",
    "KMSInvalidStateException": "bring the stream's KMS key into the Enabled state",
    "KMSNotFoundException": "the stream's KMS key or its alias is gone: restore it or give the stream another key",
    "KMSOptInRequired": "this account must subscribe to KMS first",
    "InvalidArgumentException": (
        f"an argument is not valid for this stream. If the stream was deleted and created again, old positions are invalid: "
        f"start without the old state (Spark: a new checkpointLocation and metadataLocation), at {INITIAL_POSITION.key}. "
        "(`recordpublisher local` keeps its streams with --data FOLDER)"
    ),
    "ValidationException": "check the names and ARNs of streams and consumers in the properties",
    "UnknownOperationException": f"the endpoint is not Kinesis, or does not support this call: check {ENDPOINT.key}",
}
"""The advice in messages of fatal errors, by error code."""
_OF_THE_FUTURE = (
    f"; the start is in the future: set {INITIAL_POSITION.key} to a time that has passed; stored positions are moved by "
    "`recordpublisher positions reset`"
)
NOT_KINESIS = (
    f"this endpoint does not answer like Kinesis: check {ENDPOINT.key} (AWS_ENDPOINT_URL), and proxies in between"
)
DEFAULT_HINT = "a retry cannot help; the API reference of this call explains the code"


# --- errors of the network, and responses that cannot be read -----------------------------------------------------------------------


class TruncatedStreamError(Exception):
    """An event stream ended inside a frame, so a part of an event is missing."""


class MalformedResponseError(Exception):
    """A response is not HTTP/1.1, or has an encoding that was not requested."""


class ForeignResponseError(Exception):
    """A response of status 200 is not from Kinesis. A proxy or another web server has sent it."""


class StreamLostError(Exception):
    """An HTTP/2 stream, or its connection, ended before the response was complete."""


BROKEN_RESPONSE = (*UNDECODABLE, TruncatedStreamError, MalformedResponseError, ForeignResponseError)
NETWORK = (TimeoutError, EOFError, OSError, StreamLostError)
MAX_RESPONSE_BYTES = 32 * 2**20
"""The most bytes of one response, or of one event of a subscription.

10 MiB of records (the service's limit) are 14 MiB in JSON, and keys come in addition.
"""


def check_response_size(size: int) -> None:
    """Check the size of a response (bytes). Raises: MalformedResponseError if it is longer than any response of the service."""
    if size > MAX_RESPONSE_BYTES:
        raise MalformedResponseError(
            f"a response of {size:,} bytes or more; the service sends less than {MAX_RESPONSE_BYTES:,}"
        )


def error_of_transport(api: str, error: Exception) -> KinesisError:
    """Return the error for a call that got no response, or a response that cannot be read."""
    if _is_bad_certificate(error):
        return FatalKinesisError(
            api, "CertificateVerificationFailed", f"{error}; check {ENDPOINT.key} and {_TRUSTED_CAS}"
        )
    if is_host_unknown(error):
        if hint := _unknown_region(str(error)):
            return FatalKinesisError(api, "UnknownRegion", f"{error}; DNS does not know this host, and {hint}")
        return TransientError(api, type(error).__name__, f"{error}; DNS does not know this host")
    if speaks_no_tls(error):
        remedy = f"check the endpoint (of Kinesis: {ENDPOINT.key}), which begins with https"
        return TransientError(api, type(error).__name__, f"{error}; the server speaks no TLS: {remedy}")
    message = str(error) or ("no response in time" if isinstance(error, TimeoutError) else "connection lost")
    return TransientError(api, type(error).__name__, message)


def is_host_unknown(error: object) -> bool:
    """Return whether an error means that DNS does not know the host.

    Return False if DNS itself does not answer, or if `error` is not an exception.
    """
    codes = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
    return any(isinstance(cause, socket.gaierror) and cause.errno in codes for cause in _causes(error))


_HOST_OF_REGION = re.compile(r"\.((?:[a-z]+-)+\d+)\.(?:amazonaws\.|api\.aws)")


def _unknown_region(message: str) -> str:
    """Return a hint if the host in a message belongs to a region that the SDK's list does not have, else "".

    Call it only if DNS does not know the host. Otherwise the region may be newer than the SDK, or the host may be in a private network.
    """
    if (found := _HOST_OF_REGION.search(message)) is None:
        return ""
    region, known = found[1], _known_regions()
    if region in known:
        return ""
    # Two letters that changed places are a likelier mistake than another region's name.
    transposed = [each for each in known if sorted(each) == sorted(region)]
    nearest = transposed or difflib.get_close_matches(region, known, n=1)
    meant = f"; did you mean '{nearest[0]}'?" if nearest else ""
    return f"the AWS SDK knows no region '{region}' (from {REGION.key}, AWS_REGION, a profile or an ARN){meant}"


@functools.cache
def _known_regions() -> list[str]:
    from botocore.session import Session

    session = Session()
    partitions = session.get_available_partitions()
    return [name for partition in partitions for name in session.get_available_regions("kinesis", partition)]


def speaks_no_tls(error: object) -> bool:
    """Return whether an error means that the server at an `https://` address does not speak TLS.

    The address should begin with `http://`.
    """
    return any(
        isinstance(cause, ssl.SSLError) and getattr(cause, "reason", None) in NOT_TLS for cause in _causes(error)
    )


def is_refused(error: object) -> bool:
    """Return whether an error means that no process listens at the port."""
    # A host with several addresses raises one error, whose text has the error of each address.
    refused = f"[Errno {errno.ECONNREFUSED}]"
    return any(refused in str(cause) for cause in _causes(error))


def is_unanswered(error: object) -> bool:
    """Return whether a call got no response at all: the port is closed, a firewall is in between, or the connection was lost.

    Return False if `error` is only the text of an error.
    """
    return any(isinstance(cause, NETWORK) for cause in _causes(error))


def _is_bad_certificate(error: BaseException) -> bool:
    return any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error))


def _causes(error: object) -> Iterator[BaseException]:
    """Yield the error and its causes. The SDK keeps them in `kwargs`. Yield nothing if `error` is not an exception."""
    while isinstance(error, BaseException):
        yield error
        inner = getattr(error, "kwargs", {}).get("error")
        error = inner if isinstance(inner, BaseException) else error.__cause__


# --- errors of the AWS SDK ----------------------------------------------------------------------------------------------------------


class _SdkErrors(NamedTuple):
    """The error classes of the AWS SDK, and of the HTTP clients that come with it.

    - `no_credentials`: the credentials are missing or incomplete.
    - `refresh_failed`: a renewal of credentials failed. If a `credential_process` prints malformed JSON, that is a JSONDecodeError.
    - `transport`: errors of the network, and of responses that cannot be read. They come from the SDK, from aiohttp (which reads event
      streams), and from urllib3 (in an SDK of the user's own).
    """

    no_credentials: tuple[type[Exception], ...]
    refresh_failed: tuple[type[Exception], ...]
    transport: tuple[type[Exception], ...]


@functools.cache
def _sdk_errors() -> _SdkErrors:
    """Return the classes of the SDK's errors. Call it only after the SDK was imported, because it loads the SDK."""
    import aiohttp
    import urllib3.exceptions
    from aiohttp.http_exceptions import HttpProcessingError
    from botocore import exceptions as sdk
    from botocore.eventstream import ParserError as FrameError
    from botocore.parsers import ResponseParserError

    return _SdkErrors(
        (sdk.NoCredentialsError, sdk.PartialCredentialsError, sdk.ProfileNotFound, sdk.NoAuthTokenError),
        (sdk.CredentialRetrievalError, sdk.MetadataRetrievalError, sdk.TokenRetrievalError, json.JSONDecodeError),
        (
            sdk.HTTPClientError, sdk.ConnectionError, aiohttp.ClientError, HttpProcessingError, urllib3.exceptions.HTTPError,
            sdk.IncompleteReadError, FrameError, ResponseParserError,
        ),
    )  # fmt: skip


def _translate_sdk_error(api: str, error: Exception) -> RecordPublisherError | None:
    from botocore import exceptions as sdk

    kinds = _sdk_errors()
    if isinstance(error, sdk.ClientError):
        return _from_sdk_response(api, error)
    if isinstance(error, kinds.no_credentials):
        is_missing = isinstance(error, sdk.NoCredentialsError)
        other = ConfigurationError("AWS credentials", None, TO_HAVE_CREDENTIALS, reason=f"{api}: {error}")
        return NoCredentialsError() if is_missing else other
    if isinstance(error, sdk.EndpointProviderError):
        return ConfigurationError(ENDPOINT.key, None, ENDPOINT.valid, reason=f"{api}: {error}")
    if isinstance(error, (*kinds.transport, *kinds.refresh_failed)):
        return error_of_transport(api, error)
    if isinstance(error, sdk.BotoCoreError):
        return FatalKinesisError(api, type(error).__name__, str(error))
    return None


def _from_sdk_response(api: str, error: Any) -> KinesisError:
    details = error.response.get("Error", {})
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    # The SDK may have called STS to renew the credentials for this call. Its error then names the operation of STS.
    return error_for_code(error.operation_name or api, details.get("Code", ""), details.get("Message", ""), status)
