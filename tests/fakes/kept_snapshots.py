"""A place of snapshots without a store: each start takes them over, and fences the one before."""

from recordpublisher.publishers.errors import FencedError


class KeptSnapshots:
    """Records every snapshot, in order. A fetcher gets `alone=kept.start()`."""

    def __init__(self):
        self.kept = []
        self.opened = 0

    def start(self):
        return OneStart(self)

    async def begin(self):
        """Begin the next epoch."""
        self.opened += 1
        return self.opened

    async def write(self, epoch, state):
        """Store a snapshot of this epoch."""
        if epoch != self.opened:
            raise FencedError("replaced")
        self.kept.append(state)


class OneStart:
    """What one start has in the place of an `AloneWorker`."""

    counts = None

    def __init__(self, place):
        self._place = place
        self._epoch = 0

    async def open(self):
        self._epoch = await self._place.begin()
        return self._epoch, self._place.kept[-1:]

    async def store(self, state):
        await self._place.write(self._epoch, state)

    async def close(self):
        """Nothing was opened."""
