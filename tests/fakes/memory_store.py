"""A conditional store in a dict: what the others are compared with."""

from __future__ import annotations

from recordpublisher.fetcher.conditional_store import ConditionalStore, ConflictError, VersionedValue


class MemoryStore(ConditionalStore):
    """Versions are numbers of writes."""

    place = "memory"

    def __init__(self) -> None:
        self.values: dict[str, VersionedValue] = {}
        self.writes = 0

    async def get(self, name: str) -> VersionedValue | None:
        return self.values.get(name)

    async def put_if_absent(self, name: str, value: bytes) -> str:
        return self._write(name, value, None)

    async def compare_and_set(self, name: str, value: bytes, expected: str) -> str:
        return self._write(name, value, expected)

    async def list(self, prefix: str, *, consistent: bool = True) -> dict[str, VersionedValue]:
        return {name: self.values[name] for name in sorted(self.values) if name.startswith(prefix)}

    async def list_versions(self, prefix: str) -> dict[str, str]:
        return {name: entry.version for name, entry in (await self.list(prefix)).items()}

    async def list_names(self, prefix: str, before: str | None = None) -> list[str]:
        return [name for name in await self.list(prefix) if before is None or name < before]

    async def delete(self, *names: str) -> None:
        for name in names:
            self.values.pop(name, None)

    def _write(self, name: str, value: bytes, expected: str | None) -> str:
        current = self.values.get(name)
        if expected != (None if current is None else current.version):
            raise ConflictError(self.place, name, current)
        self.writes += 1
        self.values[name] = VersionedValue(value, str(self.writes))
        return str(self.writes)
