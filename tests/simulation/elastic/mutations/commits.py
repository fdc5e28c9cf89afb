"""Without one of the rules about commits of a sink: what an entry names, for which life, and until when (S6, E1, E12)."""

from __future__ import annotations

from typing import Any

from recordpublisher.fetcher.checkpoints.staged_commits import Commits
from recordpublisher.fetcher.elastic.positions_with_rows import PositionsWithRows, SinkLives
from recordpublisher.fetcher.leases.position_commits import PositionCommits

from .patches import Patches


def prepared_takes_name_staged_rows() -> Patches:
    """S6: an entry whose positions do not cover them names rows that are staged."""
    commit = PositionsWithRows.commit

    async def naming(self: PositionsWithRows, positions: Any, *, is_checkpoint: bool = False) -> None:
        await commit(self, positions, is_checkpoint=True)

    return [(PositionsWithRows, "commit", naming)]


def scope_is_from_before_the_lock() -> Patches:
    """S6: a shard that began while the checkpoint waited for the sink is staged, and its position is not stored."""

    async def take_checkpoint(self: PositionCommits, *, may_be_partial: bool) -> None:
        async with self._checkpoint:
            scope = self._owned.checkpoint_scope()
            async with self._readers.checkpoint(may_be_partial=may_be_partial) as current:
                async with self._commit:
                    await self._positions.settle()
                await self._positions.stage()
                async with self._commit:
                    await self._positions.settle()
                    await self._store(self._owned.positions(scope, current), is_checkpoint=True)
            await self._positions.publish()

    return [(PositionCommits, "take_checkpoint", take_checkpoint)]


def names_of_the_unpublished_are_dropped() -> Patches:
    """S6: an entry names what it commits alone."""
    decide = Commits._decide

    async def dropping(self: Commits, write: Any) -> None:
        await decide(self, write)
        self._unpublished = list(write.staged)

    return [(Commits, "_decide", dropping)]


def cleaned_before_it_is_published() -> Patches:
    """E12: what a worker has left is deleted although its entry names some of it."""

    async def delete(self: PositionsWithRows, worker: str) -> bool:
        if self._entries is not None:
            await self._entries.delete_worker(worker)
        return True

    async def publish(self: PositionsWithRows, record: Any) -> Any:
        place = self._entries or self._group
        part = await self._seal(place, record.worker, 0)
        return {} if part is None else part.positions

    return [(PositionsWithRows, "delete", delete), (PositionsWithRows, "seal", publish)]


def an_ended_life_stages() -> Patches:
    """E1: what was written for the next life is staged by the one before, whose last calls go on."""

    async def begin(self: SinkLives, life: str) -> None:
        await self.sink.begin(life)
        self._life = life

    def check(self: SinkLives, life: str) -> None:
        """Nothing is checked."""

    return [(SinkLives, "begin", begin), (SinkLives, "check", check)]


def an_ended_life_commits() -> Patches:
    """E1: a checkpoint that has read the positions goes on when the rows of its life are dropped."""
    return [(PositionCommits, "end", lambda self: None)]


COMMITS = [
    prepared_takes_name_staged_rows,
    scope_is_from_before_the_lock,
    names_of_the_unpublished_are_dropped,
    cleaned_before_it_is_published,
    an_ended_life_stages,
    an_ended_life_commits,
]
