"""The errors that this library raises. Each class names what failed, and whether a retry can help.

RecordPublisherError
├── ConfigurationError            a property is wrong: key, value and what is valid; never retried
├── PluginError                   a plugin could not be loaded, or two plugins claim one name; never retried
├── KinesisError                  a call to the service failed (`api`, `code`)
│   ├── TransientError            retry with backoff: network, 5xx, malformed frames
│   │   └── ThrottledError        retry with backoff: limits and throughput
│   ├── ResourceInUseError        wait: for 5 s (F3), or until a state change has ended
│   ├── ExpiredIteratorError      take a new iterator from the read position (R2)
│   ├── ResourceNotFoundError     find out which: shard, stream or consumer (F4)
│   └── FatalKinesisError         a person must act: access, keys, invalid arguments
├── StreamNotFoundError           the stream does not exist; never retried
├── ConsumerError                 a fan-out consumer cannot be used: limit, taken over, vanished
├── RetriesExhaustedError         a retry budget is used up without progress
├── OutageError                   a service was unavailable for longer than the job waits (Spark: `maxOutage`)
├── DeserializationError          a record cannot be turned into a value (S7)
├── StateError                    a snapshot cannot be read or restored
│   ├── StoreUnavailableError     a store of positions cannot be reached now; a retry may help
│   └── DataLossError             the position is past retention: records are gone (S5)
├── FencedError                   a newer generation owns the state; this process must stop (S6)
├── SinkError                     a sink refused or lost a write
└── ImpossibleStateError          a broken invariant: always raised (F11)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Self

from .safe_text import MASK, mask_passwords, mask_quoted, names_a_secret, notes_of, repr_of

if TYPE_CHECKING:
    from .positions import StartingPosition


class RecordPublisherError(Exception):
    """The root of every error that this library raises on purpose."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(without_colours(each) if isinstance(each, str) else each for each in args))

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to unpickle the error. Its constructor cannot be used for that, because it takes other arguments than the message."""
        return _unpickled, (type(self), self.args, self.__dict__)

    @property
    def help_page(self) -> str:
        """The page and section of the documentation that explains the error, and says what to do."""
        name = next(each.__name__ for each in type(self).__mro__ if each.__module__ == __name__)
        return f"reference/errors#{name.lower()}"


def _unpickled(
    kind: type[RecordPublisherError], args: tuple[object, ...], state: dict[str, Any]
) -> RecordPublisherError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class ConfigurationError(RecordPublisherError, ValueError):
    """A property, an option or an argument is missing or wrong. The message says what is wrong, why, and what would be valid.

    Attributes:
    - `key`: the name of the property, option or argument.
    - `value`: the value that was given. It is None if none was given, or if it must not be shown. A secret is never kept.
    - `valid`: the values that would be valid. It is empty if the key itself is not accepted.
    - `reason`: why the value is wrong.
    - `statement`: what is wrong if another setting is the cause, such as "cannot be combined with '--watch'". Else it is empty.
    - `may_pass`: whether the same value may be valid at the next start, because something outside of the job is the cause, such as a port
      that another process holds. Commands then end with exit code 1, after which a supervisor starts the job again, instead of 2.

    A plugin raises the error when it is made, if the declaration of its property cannot check the value:

    - The property is missing: `ConfigurationError(URL.key, valid=URL.valid)`. The message says `is required`, because there is no value.
    - The value is wrong: `ConfigurationError(URL.key, url, URL.valid, reason="it has no port")`.
    - The property needs another one: `ConfigurationError.needs(TOKEN.key, f"'{URL.key}'", reason="it is sent to that service")`.
    - Two properties exclude each other: `ConfigurationError.conflict(TOKEN.key, USER.key, reason="remove one of them")`.
    """

    def __init__(
        self,
        key: str,
        value: object = None,
        valid: str = "",
        *,
        reason: str = "",
        statement: str = "",
        may_pass: bool = False,
    ) -> None:
        self.key = key
        self.may_pass = may_pass
        # A plugin may quote the value that it refuses, for example in the answer of its service.
        reason = mask_quoted(reason, {key: value})
        self.value = value = MASK if value is not None and names_a_secret(key) else _without_secrets(value)
        self.valid = valid
        self.reason = reason = mask_passwords(reason)
        self.statement = statement
        absent = "is required" if valid else "is not accepted"
        kind = "option" if key.startswith("-") else "property" if "." in key else "setting"
        is_flag = kind == "option" and value is True
        shown = repr(value) if isinstance(value, str) else mask_passwords(repr_of(value, None))
        stated = statement or (absent if value is None else "is given" if is_flag else f"is {shown}")
        named = key
        if statement and value is not None and not is_flag:
            named = f"{key}{' ' if kind == 'option' else '='}{value if isinstance(value, str) else shown}"
        told = f"{kind} '{named}' {stated}" + (f": {reason}" if reason else "")
        end = "" if told.endswith((".", "?")) else "."
        super().__init__(f"{told}{end} Valid: {valid}" if valid else told)

    @classmethod
    def conflict(cls, key: str, *others: str, value: object = None, reason: str = "") -> Self:
        """Return the error for a key that cannot be combined with any of `others`: `option '--check' cannot be combined with '--watch'`.

        - `key`: the name of the property, option or argument that should be removed or changed.
        - `others`: the names of the others, each alone or with its value, such as `flink.job.workers=GROUP`.
        - `value`: the value of `key`, if another value could be combined with the others.
        - `reason`: why they cannot be combined, and what to do instead.
        """
        return cls(key, value, reason=reason, statement=f"cannot be combined with {' or '.join(map(repr, others))}")

    @classmethod
    def needs(cls, key: str, needed: str, *, value: object = None, reason: str = "") -> Self:
        """Return the error for a key that needs something else to be valid: `option '--shard' needs exactly one stream`.

        - `needed`: what the key needs, as a noun phrase.
        - `value`: the value of `key`, if another value would not need it.
        - `reason`: why it is needed.
        """
        return cls(key, value, reason=reason, statement=f"needs {needed}")

    def renamed(self, key: str) -> ConfigurationError:
        """Return a copy of the error with another name of its key, such as a command's option instead of a function's argument."""
        return self.reworded(key, self.valid, self.reason, self.statement)

    def reworded(self, key: str, valid: str, reason: str, statement: str) -> ConfigurationError:
        """Return a copy of the error with these attributes, which also make its message. It keeps the value and the notes."""
        made = ConfigurationError(key, self.value, valid, reason=reason, statement=statement, may_pass=self.may_pass)
        for note in notes_of(self):
            made.add_note(note)
        return made


def _without_secrets(value: object) -> object:
    """Return the value as a message may show it. Passwords in a text are masked, and of a container only the type is shown."""
    # The values in a container have no names by which secrets could be masked, so only its type is shown.
    if isinstance(value, str):
        return mask_passwords(value)
    return f"a {type(value).__name__}" if isinstance(value, Iterable) and not isinstance(value, type) else value


class PluginError(RecordPublisherError):
    """A plugin failed to load, does not implement its interface correctly, or has the name of another plugin."""


class Remedy(Enum):
    """How a failed call is handled. Every error of the service, the SDK and the network has one of these remedies."""

    RETRY = "the call is retried with backoff; progress resets the retry budget"
    WAIT = "wait until the resource is free; not counted as a retry"
    REFRESH = "a new shard iterator is taken at the read position; not counted as a retry"
    DIAGNOSE = "find out what is gone: shard, stream or consumer"
    ACT = "the job ends; the message states what you can do"


class KinesisError(RecordPublisherError):
    """A call to the service failed.

    - `api`: the operation.
    - `code`: the error code of the service or of this library.

    A plugin may pass only a message: `TransientError("the archive does not answer")`. Then `api` and `code` are empty.
    """

    remedy: ClassVar[Remedy] = Remedy.ACT
    """How a call that fails with this error is handled."""

    def __init__(self, api_or_message: str, code: str = "", message: str = "") -> None:
        self.api = api_or_message if code else ""
        self.code = code
        super().__init__(f"{api_or_message} failed with {code}: {message}" if code else api_or_message)


class TransientError(KinesisError):
    """A call failed, and a retry with backoff may help: a network error, an internal failure of the service, a malformed frame.

    - `retry_after`: how long the service asks to wait (seconds), such as the `Retry-After` of HTTP. `SinkContext.retry`,
      `MapSink` and `call_with_retries` wait for it.

    Raises: PluginError if `retry_after` is not a number.
    """

    remedy = Remedy.RETRY
    retry_after: float | None = None

    def __init__(
        self, api_or_message: str, code: str = "", message: str = "", *, retry_after: float | None = None
    ) -> None:
        super().__init__(api_or_message, code, message)
        if retry_after is not None:
            # The header of HTTP is a text, and may be a date.
            if not isinstance(retry_after, int | float):
                raise PluginError(f"'retry_after' must be seconds, as a number, or None, not {repr_of(retry_after)}")
            self.retry_after = retry_after


class ThrottledError(TransientError):
    """A limit of the service was reached. A retry with backoff helps."""


class StreamNotActiveError(TransientError):
    """The stream is being created. `call_with_retries` waits up to five minutes for it, and does not count these retries."""

    def __init__(self, api: str, stream: str) -> None:
        super().__init__(api, "StreamNotActive", f"stream '{stream}' is CREATING")


class ResourceInUseError(KinesisError):
    """The stream, consumer or subscription is busy. SubscribeToShard raises it for 5 s after the last subscription was opened."""

    remedy = Remedy.WAIT


class ExpiredIteratorError(KinesisError):
    """The shard iterator is older than five minutes. Reading continues with a new iterator."""

    remedy = Remedy.REFRESH


class ResourceNotFoundError(KinesisError):
    """A shard, a stream or a registered consumer does not exist. The caller finds out which of them is gone."""

    remedy = Remedy.DIAGNOSE


class FatalKinesisError(KinesisError):
    """A call failed, and a retry cannot help: access was denied, KMS failed, or an argument is invalid."""


class StreamNotFoundError(RecordPublisherError):
    """A stream does not exist in this account and region. Attribute: `stream`.

    `place` says, for the message, where the stream was looked for.
    """

    def __init__(self, stream: str, existing: Iterable[str] = (), place: str = "") -> None:
        self.stream = stream
        names = ", ".join(sorted(existing))
        where = f" in {place}" if place else ""
        super().__init__(f"stream '{stream}' does not exist{where}" + (f"; existing streams: {names}" if names else ""))


class ConsumerError(RecordPublisherError):
    """A consumer of enhanced fan-out cannot be used.

    The stream has its maximum of consumers, the consumer was deregistered, or another job uses its name.
    """


class RetriesExhaustedError(RecordPublisherError):
    """A call has failed as often as its retries allow, without a success in between.

    - `remedy`: what may help, as the end of the message. It is empty if nothing is known.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message}; {remedy}" if remedy else message)
        self.remedy = remedy


class OutageError(RecordPublisherError):
    """A service was unavailable for longer than the job waits. The message names the service, the call and the start of the outage."""


class DeserializationError(RecordPublisherError):
    """A record could not be turned into a value. Attributes: `stream`, `shard_id`, `sequence_number`."""

    def __init__(self, stream: str, shard_id: str, sequence_number: str, reason: str) -> None:
        self.stream = stream
        self.shard_id = shard_id
        self.sequence_number = sequence_number
        super().__init__(f"record {sequence_number} of {stream}/{shard_id} cannot be deserialized: {reason}")


class StateError(RecordPublisherError):
    """A snapshot (stored state of a job) cannot be read, has a newer version, or does not fit the job."""


class StoreUnavailableError(StateError):
    """The place where state is stored cannot be reached, or is throttled. The stored state has not changed, and a retry may help."""


SERVICE_AWAY = TransientError, RetriesExhaustedError, OutageError, StoreUnavailableError
"""The errors that mean that a service is away. They say nothing about a record."""


class DataLossError(StateError):
    """The position to continue from is past the stream's retention, so records are lost.

    A publisher raises it for records that it can no longer read. With `flink.state.dataloss=CONTINUE` the job then counts and logs the
    loss, and creates the publisher again.

    - `loss`: the message without the remedy, for a job that accepts the loss.
    - `remedy`: how to continue, as the end of the message. If it is empty, the message names `flink.state.dataloss=CONTINUE`.
    - `resume`: where the next publisher of the shard starts, if the job accepts the loss. If it is None, that is the oldest record.
    """

    def __init__(self, loss: str, remedy: str = "", *, resume: StartingPosition | None = None) -> None:
        super().__init__(f"{loss}. {remedy or 'Set flink.state.dataloss=CONTINUE to continue without them'}")
        self.loss = loss
        self.resume = resume


class FencedError(RecordPublisherError):
    """The job was started again, and its new processes own the positions. This process must no longer emit records."""


class SinkError(RecordPublisherError):
    """A sink refused or lost a write."""


class InvalidRecordError(SinkError):
    """The service would reject a record: its data or key is too long, or the key is empty. The sink did not accept it, and stays usable.

    A handler of `MapSink` may raise it for a record that it can never handle. The record is then not handled again.
    """


class ImpossibleStateError(RecordPublisherError):
    """An assumption of this library does not hold, so it has a bug."""


# --- errors of other libraries ----------------------------------------------------------------------------------------------------------

NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})
"""The reasons in OpenSSL's errors that mean that the received bytes are not TLS."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def causes_of(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and its causes, each only once."""
    # An error can be its own cause, so errors that were returned already are remembered.
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def without_colours(text: str) -> str:
    """Return a text without the escape codes for colours in a terminal."""
    # Other libraries put these codes into errors, even if the error goes to a log.
    return _COLOURS.sub("", text)
