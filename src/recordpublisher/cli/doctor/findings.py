"""Runs checks and describes their findings. `examine` runs one check, and `examine_all` the checks of a publisher or a sink."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from recordpublisher.publishers.base import Checks
from recordpublisher.publishers.errors import PluginError
from recordpublisher.publishers.safe_text import repr_of
from recordpublisher.publishers.user_code import GRACE_SECONDS, add_note, end_or_leave, waiting_line

from ..execution import one_line

log = logging.getLogger("recordpublisher.command")
CHECK_SECONDS = 30.0
"""The longest time for which a check may wait (seconds). Each call of a check is made once, without retries."""
CHECK_WOULD_CHANGE_SOMETHING = "a check would change something"


class Verdict(StrEnum):
    """The verdict of a check, which begins its line."""

    OK = "ok"
    PROBLEM = "PROBLEM"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the output: what was checked, the verdict, and in words what was found or what to do."""

    name: str
    verdict: Verdict
    words: str


class NotCheckedError(Exception):
    """Raised if a check cannot be made, with the reason."""


Check = Callable[[], str | Awaitable[str | None]]
"""Returns what was found, or None if that is not known. Raises: NotCheckedError with the reason; any other error is a problem."""


async def examine(name: str, check: Check) -> Finding:
    """Run a check once, without retries, and return its finding. An error, even of a plugin, does not end the other checks."""
    try:
        found = check()
        words: Any = await _within_time(found) if inspect.isawaitable(found) else found
    except NotCheckedError as reason:
        return Finding(name, Verdict.NOT_CHECKED, str(reason))
    except Exception as error:
        log.debug("the check '%s' failed", name, exc_info=True)
        return failed_finding(name, error)
    if words is None:
        return Finding(name, Verdict.NOT_CHECKED, CHECK_WOULD_CHANGE_SOMETHING)
    if not isinstance(words, str):
        return failed_finding(name, PluginError(f"the check returned {repr_of(words)}: return a sentence, or None"))
    return Finding(name, Verdict.OK, words)


async def _within_time(found: Awaitable[Any]) -> Any:
    """Return the result of a check. Raises: PluginError if it takes too long, so that the other checks are still made."""
    asking = asyncio.ensure_future(found)
    try:
        await asyncio.wait([asking], timeout=CHECK_SECONDS)
        if asking.done():
            return asking.result()
        place = waiting_line(asking) if isinstance(asking, asyncio.Task) else "an unknown line"
        raise PluginError(f"the check has not returned for {CHECK_SECONDS:.0f} s: it waits at {place}")
    finally:
        asking.cancel()
        if isinstance(asking, asyncio.Task):
            await end_or_leave([asking], GRACE_SECONDS)


async def examine_all(prefix: str, checks_of: Callable[[], Checks]) -> list[Finding]:
    """Run the checks of a publisher or a sink one after the other, and return their findings.

    `checks_of`: returns the checks. If it raises, its error is the only finding.
    """
    try:
        checks = checks_of()
    except Exception as error:
        add_note(error, "`checks` failed")
        return [failed_finding(prefix, error)]
    given: Any = checks
    if not isinstance(given, Mapping):
        return [
            failed_finding(prefix, PluginError(f"`checks` returned {repr_of(checks)}: return a dict of checks by name"))
        ]
    return [await examine(f"{prefix}: {name}", check) for name, check in checks.items()]


def failed_finding(name: str, error: Exception) -> Finding:
    """Return the finding of a check that failed, with the message of the error as its text."""
    return Finding(name, Verdict.PROBLEM, one_line(error))


def without_repeated_problems(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings with each problem only once. Later checks with the same problem refer to the first."""
    first: dict[str, str] = {}
    told = []
    for each in findings:
        name = first.setdefault(each.words, each.name) if each.verdict is Verdict.PROBLEM else each.name
        told.append(each if name == each.name else Finding(each.name, Verdict.NOT_CHECKED, f"because of {name}"))
    return told
