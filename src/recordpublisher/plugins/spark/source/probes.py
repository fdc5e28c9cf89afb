"""Tokens in the claim store: whether tasks see the driver's store, and whether it still is the one in which claims were made."""

from __future__ import annotations

import uuid

from recordpublisher.plugins.stores.ports import ClaimStore
from recordpublisher.publishers.errors import ConfigurationError

from .batch_offset import Offset


class Probes:
    """Owns the token of each query in one store; a query keeps its token over restarts as long as the store has it."""

    def __init__(self, store: ClaimStore) -> None:
        self._store = store
        self._tokens: dict[str, str] = {}

    def remembers(self, offset: Offset) -> bool:
        """Whether the store is the one in which the offset's batch was planned, and not an empty one in its place."""
        return bool(offset.store) and self._sees(offset.query, offset.store)

    def plant(self, offset: Offset) -> str:
        """The query's token, in the store from now on. Raises: ConfigurationError when the location cannot hold claims."""
        if offset.query not in self._tokens:
            self._tokens[offset.query] = offset.store if self.remembers(offset) else uuid.uuid4().hex[:12]
        token = self._tokens[offset.query]
        self._store.plant_probe(offset.query, token)
        return token

    def _sees(self, query: str, token: str) -> bool:
        try:
            self._store.see_probe(query, token)
        except ConfigurationError:
            return False
        return True
