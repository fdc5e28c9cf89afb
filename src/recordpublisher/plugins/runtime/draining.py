"""Tells what a job that ends waits for."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from recordpublisher.fetcher.sink import Unfinished
from recordpublisher.publishers.user_code import describe_error

NOTICE_SECONDS = 10.0
log = logging.getLogger("recordpublisher.run")


async def tell_what_drains(
    sink: str,
    unfinished: Callable[[], Unfinished | None],
    hung_publishers: Callable[[], Sequence[str]],
    began: asyncio.Event | None = None,
    error: Callable[[], BaseException | None] = lambda: None,
) -> None:
    """Log every `NOTICE_SECONDS` what a drain, or a job that has failed, waits for, until the task is cancelled.

    - `unfinished`: returns the records that the sink has not finished, as far as it knows.
    - `hung_publishers`: returns the publishers that have not ended although they were cancelled.
    - `began`: set when the drain begins; None if it has begun.
    - `error`: returns the error that ends the job, if it has failed.
    """
    if began is not None:
        await began.wait()
    waited = 0.0
    while True:
        await asyncio.sleep(NOTICE_SECONDS)
        waited += NOTICE_SECONDS
        left, publishers = unfinished(), hung_publishers()
        what = f"the sink '{sink}' ({'a call that runs, a lock in a database' if left is None else left.reason})"
        if publishers:
            what = f"{'; '.join(publishers[:3])}. `run` of a publisher must end when its task is cancelled, and not catch CancelledError"
        failed = error()
        state = "has been draining" if failed is None else f"has failed ({describe_error(failed)}), and has been ending"
        log.warning(
            "the job %s for %.0f s: it waits for %s. If the process is ended now (a second signal ends "
            "`recordpublisher run`), what came after the last checkpoint is read again",
            state,
            waited,
            what,
        )
