"""The StateStore port: where checkpoints are kept, fenced by generation (S6)."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ..sink import State


class StateStore(ABC):
    """Keeps one snapshot for each subtask of a job. Built as `StateStore(properties)`."""

    @abstractmethod
    async def load(self) -> list[State]:
        """Every stored snapshot of the job; an empty list on the first start. Raises: StateError when one is unreadable."""

    @abstractmethod
    async def open_generation(self, subtask: int) -> int:
        """Take a generation higher than any before: later stores of this subtask's earlier starts raise FencedError."""

    @abstractmethod
    async def store(self, subtask: int, generation: int, state: State) -> None:
        """Keep a snapshot if `generation` is still the subtask's newest. Raises: FencedError when it is not."""

    async def close(self) -> None:  # noqa: B027 - optional on purpose
        """Release what the store holds. Called once, when the job closes."""
