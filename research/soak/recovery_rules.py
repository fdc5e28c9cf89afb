"""Every recovery rule, and the patches that remove it (`make mutation`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from . import without_fan_out, without_fetcher, without_polling
from .patches import Patches

RULES: dict[str, Callable[[], Patches]] = {
    "R2 expired iterators are renewed": without_polling.expired_iterators_are_renewed,
    "R2 iterators are renewed from the read position": without_polling.iterators_are_renewed_from_the_read_position,
    "R2 iterators older than four minutes are replaced before use": without_polling.old_iterators_are_replaced_before_use,
    "R4 a refused shard is not read for a second": without_polling.a_refused_shard_is_not_read_for_a_second,
    "R1 five calls a second at most": without_polling.reads_keep_five_calls_a_second,
    "R4 failed calls are tried again": without_polling.failed_calls_are_tried_again,
    "F4 a shard that is not found is investigated (polling)": without_polling.a_shard_that_is_not_found_is_investigated,
    "F4 a listing older than the shard is not trusted": without_polling.a_listing_older_than_the_shard_is_not_trusted,
    "P1 polling resumes from the returned position": without_polling.reading_resumes_from_the_returned_position,
    "F3 throttling is recognised": without_polling.throttling_is_recognised,
    "F3 server errors are recognised": without_polling.server_errors_are_recognised,
    "R4 network errors are recognised": without_polling.network_errors_are_recognised,
    "F3 broken responses and frames are recognised": without_polling.broken_responses_are_recognised,
    "F3 frames are checked": without_polling.frames_are_checked,
    "F2 a clean end is not the end of the shard": without_fan_out.a_clean_end_is_not_the_end_of_the_shard,
    "P1 subscriptions resume from the returned position": without_fan_out.subscriptions_resume_from_the_returned_position,
    "F3 broken subscriptions are opened again": without_fan_out.broken_subscriptions_are_opened_again,
    "F3 refused subscriptions are tried again": without_fan_out.refused_subscriptions_are_tried_again,
    "F3 ResourceInUse is not counted": without_fan_out.in_use_is_not_counted,
    "F2 five seconds between a success and the next call": without_fan_out.five_seconds_lie_between_success_and_call,
    "F9 one second between calls": without_fan_out.one_second_lies_between_calls,
    "F3 progress resets the retry budget": without_fan_out.progress_resets_the_retry_budget,
    "F5 a silent subscription is closed": without_fan_out.a_silent_subscription_is_closed,
    "F5 subscriptions left unread are closed": without_fan_out.unread_subscriptions_are_closed,
    "F4 a consumer that is not found is investigated": without_fan_out.a_lost_consumer_is_investigated,
    "F4 a lost consumer is registered again": without_fan_out.a_lost_consumer_is_registered_again,
    "F8 a consumer that is being deleted is waited for": without_fan_out.a_consumer_that_is_being_deleted_is_waited_for,
    "F8 a consumer that another registered is shared": without_fan_out.a_consumer_that_somebody_else_registered_is_shared,
    "S3 failed discovery never ends a job": without_fetcher.failed_discovery_never_ends_a_job,
    "S3 ChildShards are used at once": without_fetcher.child_shards_are_used_at_once,
    "S2 parents before children": without_fetcher.parents_come_before_children,
    "S5 a waiting shard does not mean that its parents are finished": without_fetcher.a_waiting_shard_does_not_mean_finished_parents,
    "S2 a shard that a listing lacks is asked for": without_fetcher.a_shard_that_a_listing_lacks_is_asked_for,
    "S3 a shard found later is read from its beginning": without_fetcher.found_shards_are_read_from_their_beginning,
    "S3 other workers discover children by listing": without_fetcher.other_workers_discover_children_by_listing,
    "P3 LATEST is pinned once for the job": without_fetcher.latest_is_pinned_once_for_the_job,
    "S5 a listing older than the state is requested again": without_fetcher.an_old_listing_is_requested_again_at_the_start,
}


@contextmanager
def without(rule: str) -> Iterator[None]:
    """The library without one of its rules, while the block runs."""
    with ExitStack() as stack:
        for each in RULES[rule]():
            stack.enter_context(each)
        yield
