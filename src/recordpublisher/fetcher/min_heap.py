"""A heap that finds the lowest of many changing values in O(log n)."""

import heapq
from typing import Generic, TypeVar

K = TypeVar("K", str, int)


class IndexedMinHeap(Generic[K]):
    """Values by key. Setting a value and getting the lowest one cost O(log n).

    Replaced entries stay in the heap until they reach its top, or until they outnumber the current ones.
    """

    def __init__(self) -> None:
        self._values: dict[K, float] = {}
        self._heap: list[tuple[float, K]] = []

    def __len__(self) -> int:
        return len(self._values)

    def value(self, key: K) -> float | None:
        """Return the value of one key, or None if it has none."""
        return self._values.get(key)

    def set(self, key: K, value: float | None) -> None:
        """Set the value of `key`; None removes it."""
        if value is None:
            self._values.pop(key, None)
        elif self._values.get(key) != value:
            self._values[key] = value
            heapq.heappush(self._heap, (value, key))
            if len(self._heap) > 2 * len(self._values) + 64:
                self._rebuild()

    def lowest(self) -> tuple[float, K] | None:
        """Return the lowest value with its key, or None if the heap is empty."""
        heap, values = self._heap, self._values
        while heap:
            value, key = heap[0]
            if values.get(key) == value:
                return heap[0]
            heapq.heappop(heap)
        return None

    def lowest_few(self, count: int) -> list[tuple[float, K]]:
        """Return at most `count` of the lowest values with their keys, in order."""
        few: list[tuple[float, K]] = []
        while len(few) < count and self.lowest() is not None:
            top = heapq.heappop(self._heap)
            if not few or few[-1] != top:  # a value that was set again is in the heap twice
                few.append(top)
        for each in few:
            heapq.heappush(self._heap, each)
        return few

    def _rebuild(self) -> None:
        self._heap = [(value, key) for key, value in self._values.items()]
        heapq.heapify(self._heap)
