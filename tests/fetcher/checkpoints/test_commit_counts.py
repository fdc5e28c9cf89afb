"""CommitCounts: what the last commit had, and how long ago it was."""

import asyncio

from recordpublisher.fetcher.checkpoints.staged_commits import CommitCounts
from recordpublisher.fetcher.sink import CommitNumber, Staged
from recordpublisher.testing import VirtualClock, run_virtual


def test_the_age_is_that_of_the_last_commit_that_had_records():
    async def commits():
        counts = CommitCounts(VirtualClock())
        counts.on_stored((), 0)
        assert counts.age_ms is None
        counts.on_stored((Staged(CommitNumber("job/0", 1), {}, files=2, size=30),), 5)
        await asyncio.sleep(60)
        counts.on_stored((), 5)
        await asyncio.sleep(1)
        assert (counts.age_ms, counts.files, counts.size, counts.records) == (61_000, 2, 30, 5)

    run_virtual(commits())
