"""Decides what the driver does now, from a plan and some facts, without state and clock. `NewDataWatch` decides what counts as new."""

from dataclasses import dataclass
from enum import Enum

from ..options.spark_options import SparkOptions
from .plan import BatchPlan

SHORTEST_WATCH_MS = 1_000


class Decision(Enum):
    """An action that the driver takes at once."""

    PLAN = "run the batch"
    LIST = "list the streams, and plan again: there may be children that no response has named"
    FINISH = "the run has read everything that was available"


@dataclass(frozen=True, slots=True)
class Wait:
    """Run no batch before `until_ms` (epoch ms).

    - `may_be_new`: whether there may be records that no read has looked for.
    """

    until_ms: int
    may_be_new: bool = False


@dataclass(frozen=True, slots=True)
class Watch:
    """Poll all shards until one has something new. Otherwise run no batch before `until_ms` (epoch ms).

    - `first_look`: whether the last batch had records, so that there may be more already. If a first look at every shard does not show
      within `FIRST_LOOK_SECONDS` that there are none, the batch runs.
    """

    until_ms: int
    first_look: bool


Step = Decision | Wait | Watch


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that a decision needs, in addition to the plan and the options. Times are epoch ms.

    - `now_ms`: the driver's time.
    - `retry_at_ms`: time before which no batch may run, because the reads of the last one had no response.
    - `found_new`: whether the watch has found something, or could not read every shard in time.
    - `has_listed`: whether the streams were listed for this batch.
    """

    now_ms: int
    retry_at_ms: int
    found_new: bool
    has_listed: bool


def next_step(plan: BatchPlan, facts: Facts, options: SparkOptions) -> Step:
    """Return what the driver does now. The cases, in this order:

    1. A fan-out read that ended early still keeps the next one from subscribing (F9), or an outage is waited for.
    2. An AvailableNow run has read everything.
    3. No shard can be read. Children that no response has named may exist, so the streams are listed once.
    4. No task has read the last batch, or an AvailableNow run found nothing: a batch in each probe interval.
    5. There is more to read, according to the last reads or the watch, or a batch is due.
    6. The stream is quiet: the driver watches it until something is new or a batch is due. Before that it lists the streams as in 3.
    """
    claims, now_ms = plan.claims, facts.now_ms
    earliest_ms = max(claims.subscribed_ms + options.fan_out_window_ms, facts.retry_at_ms)
    if now_ms < earliest_ms:
        return Wait(earliest_ms, may_be_new=now_ms >= facts.retry_at_ms)
    may_list = plan.has_unlisted_ends and not facts.has_listed
    if plan.is_run_over:
        return Decision.LIST if may_list else Decision.FINISH
    if not plan.readable:
        return Decision.LIST if may_list else Wait(now_ms)
    probe_at_ms = plan.previous.planned_ms + options.probe_ms
    is_repeated = claims.is_unread or (plan.is_available_now and plan.read_everything and claims.is_quiet)
    if is_repeated and now_ms < probe_at_ms:
        return Wait(probe_at_ms)
    due_ms = max(plan.due_ms, probe_at_ms)
    has_more = plan.is_available_now or not plan.read_everything or facts.found_new
    if is_repeated or has_more or now_ms >= due_ms:
        return Decision.PLAN
    until_ms = min(due_ms, now_ms + max(options.probe_ms, SHORTEST_WATCH_MS))
    return Decision.LIST if may_list else Watch(until_ms, first_look=not claims.is_quiet)
