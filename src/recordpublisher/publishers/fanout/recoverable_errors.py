"""RecoverableErrors: the errors that a user declared to be retried (FLINK-33260)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import ConfigurationError, KinesisError
from ..properties.groups.fanout import RECOVERABLE_ERRORS
from ..properties.properties import Properties

_KEY = re.compile(r"(\d+)\]\.exception")
_NAME = re.compile(r"\w+([.$]\w+)*")
_VALID = (
    f"{RECOVERABLE_ERRORS.key}0].exception=<name>, then [1] and so on; a name is an AWS error code or an error class"
)


@dataclass(frozen=True, slots=True)
class RecoverableErrors:
    """Names of errors that are retried without counting, like the recoverable errors of Flink's connector.

    A name is one of our error classes, a dotted Python class, or an AWS error code (also as the Java SDK's class name). All indices are
    used (the connector uses the first only). The whole chain of causes is searched.
    """

    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, properties: Properties) -> RecoverableErrors:
        """Raises: ConfigurationError when indices do not count from zero or a name cannot be one."""
        given = properties.with_prefix(RECOVERABLE_ERRORS)
        indices = sorted(int(_index(key, value)) for key, value in given.items())
        if indices != list(range(len(indices))):
            raise ConfigurationError(f"{RECOVERABLE_ERRORS.key}{indices[0]}].exception", None, _VALID, reason="a gap")
        return cls(frozenset(name.strip() for name in given.values()))

    def __contains__(self, error: BaseException) -> bool:
        return bool(self.names) and any(self._names(cause) for cause in _chain(error))

    def _names(self, error: BaseException) -> bool:
        if isinstance(error, KinesisError) and any(_last_part(name) == error.code for name in self.names):
            return True
        return any(
            kind.__name__ in self.names or f"{kind.__module__}.{kind.__qualname__}" in self.names
            for kind in type(error).__mro__
        )


def _index(key: str, value: str) -> str:
    found = _KEY.fullmatch(key)
    if found is None or not _NAME.fullmatch(value.strip()):
        raise ConfigurationError(RECOVERABLE_ERRORS.key + key, value, _VALID)
    return found[1]


def _last_part(name: str) -> str:
    return re.split(r"[.$]", name)[-1]


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
