"""Membership: a subtask's half of the talk with a coordinator: what to say when, and what it has heard (W6, W7, W9a, W10).

No clock and no sockets: whoever carries the messages hands in the time (ms that only grow).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .heartbeat_messages import MOST_KEY_CHARACTERS, Answer, Statement, Status
from .watermark_tracker import SubtaskReport, SubtaskStatus

LEAP = 1_000_000_000
"""How far a start counts on from what a predecessor on a machine with a faster clock has said: 1,000 s in µs."""

SKEW = 5_000_000
"""How far machines' clocks usually differ at most: 5 s in µs."""

_SPELLING: dict[SubtaskStatus, Status] = {
    SubtaskStatus.ACTIVE: "ACTIVE",
    SubtaskStatus.IDLE: "IDLE",
    SubtaskStatus.LEFT: "LEFT",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Which subtask of which job this is, how often it says that it is there, and how patient its group is; times in ms."""

    group: str
    subtask: int
    parallelism: int
    sync_ms: int = 1_000
    timeout_ms: int = 30_000
    startup_ms: int = 60_000

    @property
    def silence_ms(self) -> float:
        """After how long without an answer the coordinator counts as not answering."""
        return max(3 * self.sync_ms, self.timeout_ms / 3)


class Membership:
    """Owns the last global value known, which never falls while this subtask lives, and what is still to be said.

    `counter` is where it begins to count statements: the wall clock in µs, so that one who comes later counts higher.
    """

    def __init__(self, place: Place, counter: int, now: float) -> None:
        self.value: int | None = None
        """The global watermark, epoch ms; None before any is known."""
        self.holder: int | None = None
        self.left_out: tuple[int, ...] = ()
        self.furthest: int | None = None
        self.is_replaced = False
        """Whether somebody else speaks for this subtask; then the last value stands for ever."""
        self.refusal = ""
        """Why the last statement was not taken."""
        self._place = place
        self._counter = counter
        self._born = (counter, now)
        self._coordinator = self._generation = 0
        self._report: SubtaskReport | None = None
        self._said: Statement | None = None
        self._said_at = self._heard_at = float("-inf")
        self._in_flight = 0
        self._must_repeat = False
        self._start: int | None = None
        self._awaited: int | None = None
        self._needed: int | None = None
        self._own: dict[str, None] = {}
        self._unconfirmed: dict[str, int] = {}
        self._asked: dict[str, None] = {}
        self._finished: set[str] = set()

    # --- what the subtask has to say ---------------------------------------------------------------------------------------------

    def start_at(self, watermark: int | None) -> None:
        """The lowest watermark in the restored state."""
        self._start = watermark

    def state(self, report: SubtaskReport) -> None:
        """Where the subtask stands."""
        self._report = report

    def wait_for(self, value: int) -> None:
        """The subtask is held until the global watermark reaches `value` (W9a)."""
        self._awaited = value

    def announce(self, shards: Iterable[str]) -> None:
        """Shards whose end is confirmed (S2); those known already are not said again, nor one whose name no message has room for."""
        fresh = [shard for shard in shards if shard not in self._own and _fits(shard)]
        self._own.update(dict.fromkeys(fresh))
        self._unconfirmed.update(dict.fromkeys(fresh, 0))
        self._finished.update(fresh)

    def is_finished(self, shard: str) -> bool:
        """Whether somebody announced the shard; if not, it is asked about."""
        if shard in self._finished:
            return True
        if _fits(shard):
            self._asked[shard] = None
        return False

    # --- when to say it ---------------------------------------------------------------------------------------------------------

    def due(self, now: float) -> Statement | None:
        """What to send now: at every sync interval, and news at once, when the last statement was answered."""
        if self._report is None:
            return None
        is_heartbeat_due = now - self._said_at >= 0.9 * self._place.sync_ms  # timers are a little early or late
        has_left = self._report.status is SubtaskStatus.LEFT and self._is_news()
        if is_heartbeat_due or has_left or (not self._in_flight and self._is_news()):
            return self._statement(self._report, now)
        return None

    def is_reachable(self, now: float) -> bool:
        """Whether the coordinator was heard of lately (W10)."""
        return now - self._heard_at < self._place.silence_ms

    def response_age_ms(self, now: float) -> int | None:
        """How long ago the coordinator was last heard of (A1); None: never."""
        return None if self._heard_at == float("-inf") else round(now - self._heard_at)

    def connected(self) -> None:
        """A new connection: what was under way is lost."""
        self._in_flight = 0
        self._said_at = float("-inf")

    # --- what it hears ------------------------------------------------------------------------------------------------------------

    def hear(self, answer: Answer, now: float) -> bool:
        """Take an answer, a late or doubled one too; True when the value rose, or a shard that was asked about is finished."""
        self._heard_at = now
        if answer.counter >= self._in_flight:
            self._in_flight = 0
        if answer.refusal:
            self._refused(answer, now)
            return False
        if answer.generation < self._generation:
            return False
        self._follow(answer)
        if answer.counter:
            self._taken(answer.counter)
        self._needed, self.holder, self.left_out = answer.needed, answer.holder, answer.left_out
        self.furthest = answer.furthest
        fresh = [shard for shard in answer.finished if shard not in self._finished]
        self._finished.update(fresh)
        has_risen = answer.value is not None and (self.value is None or answer.value > self.value)
        if has_risen:
            self.value = answer.value
        return has_risen or bool(fresh)

    def _refused(self, answer: Answer, now: float) -> None:
        if answer.refusal == "OLD":
            if answer.taken <= self._counter:
                return  # a later statement of ours overtook it
            if self._generation or not self._is_a_predecessors(answer.taken, now):
                self.is_replaced = True
            else:
                self._counter = answer.taken + LEAP
                self._must_repeat = True
        elif answer.refusal == "GENERATION" and answer.generation > self._generation:
            self._follow(answer)
            self._must_repeat = True
        self.refusal = answer.refusal

    def _is_a_predecessors(self, counter: int, now: float) -> bool:
        """Whether a higher counter comes from before our start: its clock was ahead of ours. Else we slept, and were replaced."""
        born, clock = self._born[0], self._born[0] + (now - self._born[1]) * 1000
        return counter < born + SKEW or counter > clock

    def _follow(self, answer: Answer) -> None:
        """A coordinator that was restarted, and a new generation, know nothing of us."""
        if answer.generation > self._generation > 0:
            self._finished = set(self._own)
        if (answer.coordinator, answer.generation) != (self._coordinator, self._generation):
            self._coordinator, self._generation = answer.coordinator, max(answer.generation, self._generation)
            self._say_all_again()

    def _taken(self, counter: int) -> None:
        self.is_replaced, self.refusal = False, ""
        if self._unconfirmed:
            self._unconfirmed = {
                shard: said_in for shard, said_in in self._unconfirmed.items() if not 0 < said_in <= counter
            }

    # --- inside -----------------------------------------------------------------------------------------------------------------

    def _say_all_again(self) -> None:
        self._unconfirmed = dict.fromkeys(self._own, 0)
        self._needed = None

    def _is_news(self) -> bool:
        said, report = self._said, self._report
        if said is None or report is None or self._must_repeat or said.status != report.status.name:
            return True
        return (
            self._is_watermark_news(said.watermark, report.watermark)
            or (self._open_wait() is not None and self._awaited != said.awaited)
            or any(not said_in for said_in in self._unconfirmed.values())
        )

    def _is_watermark_news(self, before: int | None, after: int | None) -> bool:
        """A higher one is news only to somebody who waits for it; the heartbeat says the rest."""
        if before is None or after is None:
            return before is not after
        return after < before or (self._needed is not None and before < self._needed <= after)

    def _open_wait(self) -> int | None:
        """The value that is waited for, unless it was reached."""
        is_reached = self._awaited is None or (self.value is not None and self.value >= self._awaited)
        return None if is_reached else self._awaited

    def _statement(self, report: SubtaskReport, now: float) -> Statement:
        place = self._place
        self._counter += 1
        self._in_flight, self._said_at, self._must_repeat = self._counter, now, False
        finished = _as_many_as_fit(self._unconfirmed)
        for shard in finished:
            self._unconfirmed[shard] = self._unconfirmed[shard] or self._counter
        asked = _as_many_as_fit(self._asked)
        for shard in asked:  # whoever still wants to know asks again
            del self._asked[shard]
        self._said = Statement(
            place.group,
            place.subtask,
            place.parallelism,
            self._generation,
            self._counter,
            _SPELLING[report.status],
            report.watermark,
            self._start,
            self.value,
            self._open_wait(),
            finished,
            asked,
            place.timeout_ms,
            place.startup_ms,
            report.max_shard_watermark,
        )
        return self._said


def _fits(shard: str) -> bool:
    return len(shard) < MOST_KEY_CHARACTERS // 2


def _as_many_as_fit(shards: Iterable[str]) -> tuple[str, ...]:
    room, taken = MOST_KEY_CHARACTERS, []
    for shard in shards:
        room -= len(shard) + 8
        if room < 0:
            break
        taken.append(shard)
    return tuple(taken)
