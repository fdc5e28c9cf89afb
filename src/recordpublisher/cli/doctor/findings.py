"""Finding: what one check found. `examine` runs a check."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from recordpublisher.publishers.errors import RecordPublisherError

from ..execution import one_line


class Verdict(StrEnum):
    """The first word of a line."""

    OK = "ok"
    PROBLEM = "PROBLEM"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was checked, the verdict, and in words what was found or what to do."""

    name: str
    verdict: Verdict
    words: str


class NotCheckedError(Exception):
    """A check that cannot be made, and why."""


Check = Callable[[], str | Awaitable[str]]
"""Returns what was found. Raises: NotCheckedError; our errors, OSError or ImportError for a problem, which say what to do."""


async def examine(name: str, check: Check) -> Finding:
    """Run a check. It is made once: nothing is retried."""
    try:
        found = check()
        return Finding(name, Verdict.OK, await found if inspect.isawaitable(found) else found)
    except NotCheckedError as reason:
        return Finding(name, Verdict.NOT_CHECKED, str(reason))
    except (RecordPublisherError, ImportError, OSError) as error:
        return problem(name, error)


def problem(name: str, error: Exception) -> Finding:
    """A check that failed: the error says what to do."""
    return Finding(name, Verdict.PROBLEM, one_line(error))
