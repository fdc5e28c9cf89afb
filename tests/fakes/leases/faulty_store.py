"""A memory store whose next calls can be lost: before they take effect, or after; or take effect later."""

from __future__ import annotations

from collections.abc import Callable

from recordpublisher.publishers.errors import StoreUnavailableError

from ..memory_store import MemoryStore


class FaultyStore(MemoryStore):
    """`lose_requests` and `lose_answers`: names whose next write is lost. `before_write`: called before each write, with its name."""

    def __init__(self) -> None:
        super().__init__()
        self.lose_requests: list[str] = []
        self.lose_answers: list[str] = []
        self.late: list[Callable[[], str]] = []
        self.before_write: Callable[[str], None] = lambda name: None
        self.calls: list[tuple[str, str]] = []

    async def get(self, name: str):  # type: ignore[no-untyped-def]
        self.calls.append(("get", name))
        return await super().get(name)

    def _write(self, name: str, value: bytes, expected: str | None) -> str:
        self.before_write(name)
        self.calls.append(("write", name))
        if name in self.lose_requests:
            self.lose_requests.remove(name)
            self.late.append(lambda: MemoryStore._write(self, name, value, expected))
            raise StoreUnavailableError("no answer")
        version = super()._write(name, value, expected)
        if name in self.lose_answers:
            self.lose_answers.remove(name)
            raise StoreUnavailableError("no answer")
        return version
