"""Stopwatch: CPU of the whole process per record, in parts of equal length."""

import json
import time


class Stopwatch:
    """Owns the marks of one run. The first part, with the start-up in it, is not told."""

    def __init__(self, part: int) -> None:
        self._part = part
        self._records = 0
        self._marks: list[tuple[int, float]] = []

    def count(self, records: int) -> None:
        """So many records more were read."""
        self._records += records
        if self._records >= (len(self._marks) + 1) * self._part:
            self._marks.append((self._records, time.process_time()))

    def tell(self) -> None:
        """Print microseconds of CPU per record for each part."""
        pairs = zip(self._marks, self._marks[1:], strict=False)
        print(json.dumps([(after - before) / (seen - had) * 1e6 for (had, before), (seen, after) in pairs]))
