"""Offices: a coordinator for each group that is there, and through whom its subtasks are reached."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from recordpublisher.fetcher.coordination.coordinator import Coordinator
from recordpublisher.fetcher.coordination.heartbeat_messages import Answer, Statement

log = logging.getLogger("recordpublisher.tracker")

BATCH_SECONDS = 0.005
"""How long wake-ups are gathered, so that many reports make one batch."""

NAMED = 20
"""How many subtasks a line of the log names."""


class Seat(Protocol):
    """A connection that speaks for a subtask."""

    counter: int
    """Of its last statement that was taken."""

    def tell(self, answer: Answer) -> None:
        """Send an answer; never blocks."""
        ...


@dataclass(slots=True)
class Office:
    """One group: its coordinator, its subtasks' seats, and since when nobody is there (ms)."""

    group: str
    coordinator: Coordinator
    seats: dict[int, Seat] = field(default_factory=dict)
    subtasks: int = 0
    deserted_since: float | None = None


class Offices:
    """Owns all groups of a tracker. `later` calls a function after some seconds; times are ms that only grow.

    A group that nobody belongs to is forgotten after `forget_ms`; its subtasks, should they come back, bring what is needed.
    """

    def __init__(
        self,
        later: Callable[[float, Callable[[], None]], object],
        forget_ms: float = 900_000,
        most_groups: int = 1_000,
        most_subtasks: int = 200_000,
    ) -> None:
        self._later = later
        self._forget_ms = forget_ms
        self._most_groups = most_groups
        self._most_subtasks = most_subtasks
        self._offices: dict[str, Office] = {}
        self._restless: dict[str, Office] = {}
        self.statements = 0

    def __len__(self) -> int:
        return len(self._offices)

    @property
    def seats(self) -> int:
        """Subtasks that are connected."""
        return sum(len(office.seats) for office in self._offices.values())

    def office_of(self, said: Statement) -> Office | None:
        """The office for a group, opened when there is none; None when there is no room for it."""
        office = self._offices.get(said.group)
        if office is None or said.parallelism > office.subtasks:
            others = sum(each.subtasks for each in self._offices.values() if each is not office)
            is_full = office is None and len(self._offices) >= self._most_groups
            if is_full or others + said.parallelism > self._most_subtasks:
                return None
        if office is None:
            office = self._offices[said.group] = Office(said.group, Coordinator(secrets.randbits(62)))
        return office

    def take(self, office: Office, seat: Seat, said: Statement, now: float) -> Answer:
        """Hear a statement for a seat, and answer it."""
        self.statements += 1
        answer = office.coordinator.take(said, now)
        if not answer.refusal:
            office.subtasks = said.parallelism
            office.seats[said.subtask] = seat
            seat.counter = said.counter
        if not self._restless:
            self._later(BATCH_SECONDS, self.tell_due)
        self._restless[office.group] = office
        return answer

    def leave(self, office: Office, seat: Seat, subtask: int) -> None:
        """A seat's connection is gone; whoever took its place is not meant."""
        if office.seats.get(subtask) is seat:
            del office.seats[subtask]
            office.coordinator.lost(subtask, seat.counter)

    def tell_due(self) -> None:
        """Wake those who have to hear something without asking (W9a)."""
        restless, self._restless = self._restless, {}
        for office in restless.values():
            for subtask, answer in office.coordinator.due():
                if subtask in office.seats:
                    office.seats[subtask].tell(answer)

    def look(self, now: float) -> None:
        """Leave out who is silent, and forget groups that are gone; call it several times a second."""
        for office in list(self._offices.values()):
            silent = office.coordinator.look(now)
            if silent:
                log.warning("group %r: subtasks %s were not heard of and are left out", office.group, _named(silent))
                self._restless[office.group] = office
            self._forget_if_gone(office, now)
        self.tell_due()

    def _forget_if_gone(self, office: Office, now: float) -> None:
        if office.seats or not office.coordinator.is_deserted:
            office.deserted_since = None
        elif office.deserted_since is None:
            office.deserted_since = now
        elif now - office.deserted_since >= self._forget_ms:
            del self._offices[office.group]
            log.info("group %r is gone and forgotten", office.group)


def _named(subtasks: list[int]) -> str:
    more = f" and {len(subtasks) - NAMED} more" if len(subtasks) > NAMED else ""
    return ", ".join(map(str, subtasks[:NAMED])) + more
