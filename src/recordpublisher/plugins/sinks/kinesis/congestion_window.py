"""CongestionWindow: how much of a shard this sink uses while other producers write to it too."""

from __future__ import annotations

from dataclasses import dataclass

from .rate_control import BURST_SECONDS

MAX_WINDOW = 5_000
CONTENDED_BURST_SECONDS = 0.1
"""Calls are this far apart while the shard refuses records."""
PERSISTENT_BURST_SECONDS = 0.03
"""The same beside producers that do not back off: one that takes all that is left then costs few of our records."""
CONTENDED_SECONDS = 5.0
"""How long after a refusal calls stay small."""
EPOCH_SECONDS = 0.5
"""The window changes once in this time, however many records were refused."""
DECREASE_FACTOR = 0.8
INCREASE = 6.0
INCREASE_SHARE = 0.02
MAX_INCREASE_SHARE = 0.3
"""Growth of one epoch: a fixed part, so that writers converge to equal shares, and a share of the window, so that it recovers; for a
shard that accepts little no more than a fifth."""
SHARD_RECORDS_PER_SECOND = 1_000
"""Service limit: what is left of it is the share of the others."""
MAX_SCALE = 10.0
PERSISTENT_REFUSALS = 5.0
MAX_REFUSALS = 14.0
"""Refusing calls a second at the full rate of a shard: above the first number others do not back off (or refuse at random). Epochs
count at most the second one, so that it takes five of them, with a decrease each, to come to that conclusion."""
MAX_REFUSED_SHARE = 0.10
MAX_PROVEN_REFUSED_SHARE = 0.30
"""Refused records that are accepted while others do not seem to back off; and after a trial has shown that they do not."""
REFUSED_DECREASE_FACTOR = 0.85
MEMORY_SECONDS = 4.0
SHARE_MEMORY_SECONDS = 2.0
MAX_EPOCH_SECONDS = 2.0
"""A longer epoch (nothing was sent meanwhile) counts as this long."""
TRIAL_FACTOR = 0.5
TRIAL_EPOCHS = 4
"""Half the rate for two seconds; the first half second is not counted, since the shard is still empty."""
TRIAL_REFUSALS = 0.15
"""Refusals that are left in a trial when others back off; if they do not, half of them are left."""
FIRST_TRIAL_AFTER, LAST_TRIAL_AFTER = 10, 80
"""Epochs between trials; the number doubles while trials find no change."""


@dataclass(slots=True)
class Epoch:
    """Results of the calls within one epoch."""

    began: float
    sent: int = 0
    refused: int = 0
    refusing_calls: int = 0

    @property
    def refused_share(self) -> float:
        """Refused records, of those sent."""
        return self.refused / max(1, self.sent)


class CongestionWindow:
    """How many Kinesis records one shard may have unacknowledged, and may be sent within one burst.

    Additive increase, multiplicative decrease (AIMD), decided once in half a second: writers that share a shard converge to equal
    shares. Refusals that continue although the window shrinks come from producers that do not back off, or are random. Then only
    their share counts, and a trial at half the rate checks from time to time whether refusals depend on our rate (`Trial`).
    A window that starts small doubles until the shard first throttles.
    """

    def __init__(self, initial: int = MAX_WINDOW) -> None:
        self.size = float(initial)
        self._is_in_slow_start = True
        self._epoch: Epoch | None = None
        self._last_refusal_at = float("-inf")
        self._refusals_at_full_rate = 0.0
        self._refusing_calls_per_second = 0.0
        self._refused_share = 0.0
        self._max_refused_share = MAX_REFUSED_SHARE
        self._trial = Trial()

    @property
    def others_back_off(self) -> bool:
        """Whether refusals end when the window shrinks."""
        return self._refusals_at_full_rate < PERSISTENT_REFUSALS

    def burst_seconds(self, now: float) -> float:
        """One call sends what the window allows in this time."""
        if now - self._last_refusal_at >= CONTENDED_SECONDS:
            return BURST_SECONDS
        return CONTENDED_BURST_SECONDS if self.others_back_off else PERSISTENT_BURST_SECONDS

    def add_results(self, sent: int, refused: int, now: float) -> None:
        """Count the results of a call; at the end of an epoch adapt the window."""
        if self._epoch is None:
            self._epoch = Epoch(now)
        epoch = self._epoch
        epoch.sent += sent
        epoch.refused += refused
        if refused:
            epoch.refusing_calls += 1
            self._last_refusal_at = now
            self._is_in_slow_start = False
        elif self._is_in_slow_start:
            self.size = min(MAX_WINDOW, 2 * self.size)
        if now - epoch.began >= EPOCH_SECONDS:
            self._end_epoch(epoch, min(now - epoch.began, MAX_EPOCH_SECONDS))
            self._epoch = Epoch(now)

    def _end_epoch(self, epoch: Epoch, seconds: float) -> None:
        if self._trial.is_running:
            self._continue_trial(epoch, seconds)
            return
        self._measure(epoch, seconds)
        if self._must_shrink(epoch):
            self._shrink(epoch, seconds, DECREASE_FACTOR if self.others_back_off else REFUSED_DECREASE_FACTOR)
        else:
            growth = min(INCREASE + INCREASE_SHARE * self.size, MAX_INCREASE_SHARE * self.size)
            self.size = min(MAX_WINDOW, self.size + growth * seconds / EPOCH_SECONDS)
        if not self.others_back_off and self._trial.is_due():
            self._trial.start(self.size, self._refusing_calls_per_second)
            self._shrink(epoch, seconds, TRIAL_FACTOR)

    def _measure(self, epoch: Epoch, seconds: float) -> None:
        """Average what the last seconds brought. Another producer that takes all that is left meets our calls the more often the more
        we send, so refusing calls are scaled to the full rate."""
        rate, refusing = epoch.sent / seconds, epoch.refusing_calls / seconds
        scale = min(MAX_SCALE, max(1.0, SHARD_RECORDS_PER_SECOND / max(rate, 1.0)))
        weight, share_weight = seconds / MEMORY_SECONDS, min(1.0, seconds / SHARE_MEMORY_SECONDS)
        self._refusals_at_full_rate += weight * (min(MAX_REFUSALS, refusing * scale) - self._refusals_at_full_rate)
        self._refusing_calls_per_second += share_weight * (refusing - self._refusing_calls_per_second)
        self._refused_share += share_weight * (epoch.refused_share - self._refused_share)

    def _must_shrink(self, epoch: Epoch) -> bool:
        if self.others_back_off:
            return epoch.refused > 0
        return min(self._refused_share, epoch.refused_share) > self._max_refused_share

    def _shrink(self, epoch: Epoch, seconds: float, factor: float) -> None:
        """Shrink from what was sent, if the window allowed more than the rate limit or the application did."""
        used = min(self.size, epoch.sent / seconds * BURST_SECONDS)
        self.size = max(1.0, used * factor)

    def _continue_trial(self, epoch: Epoch, seconds: float) -> None:
        ended_with = self._trial.add(epoch.refusing_calls, seconds)
        if ended_with is None:
            return
        if ended_with.others_back_off:
            self._refusals_at_full_rate = self._refused_share = 0.0
            self._max_refused_share = MAX_REFUSED_SHARE
        else:
            self._max_refused_share = MAX_PROVEN_REFUSED_SHARE
            self.size = max(self.size, ended_with.size)


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What a trial found, and the window before it."""

    others_back_off: bool
    size: float


class Trial:
    """Whether refusals depend on our rate: half the rate for two seconds, compared with before. Owns when the next one is due."""

    def __init__(self) -> None:
        self._interval = self._epochs_left = FIRST_TRIAL_AFTER
        self._epochs_seen = -1
        self._size = self._refusing_before = 0.0
        self._refusing_calls = 0
        self._seconds = 0.0

    @property
    def is_running(self) -> bool:
        """Whether the rate is halved for the trial."""
        return self._epochs_seen >= 0

    def is_due(self) -> bool:
        """Count an epoch; returns whether it is time for a trial."""
        self._epochs_left -= 1
        return self._epochs_left <= 0

    def start(self, size: float, refusing_calls_per_second: float) -> None:
        """Begin, with the window and the refusing calls a second of before."""
        self._size, self._refusing_before = size, refusing_calls_per_second
        self._epochs_seen, self._refusing_calls, self._seconds = 0, 0, 0.0

    def add(self, refusing_calls: int, seconds: float) -> TrialResult | None:
        """Count an epoch of the trial; returns the result after the last one."""
        self._epochs_seen += 1
        if self._epochs_seen > 1:
            self._refusing_calls += refusing_calls
            self._seconds += seconds
        if self._epochs_seen < TRIAL_EPOCHS:
            return None
        self._epochs_seen = -1
        others_back_off = self._refusing_calls / self._seconds < TRIAL_REFUSALS * self._refusing_before
        self._interval = FIRST_TRIAL_AFTER if others_back_off else min(LAST_TRIAL_AFTER, 2 * self._interval)
        self._epochs_left = self._interval
        return TrialResult(others_back_off, self._size)
