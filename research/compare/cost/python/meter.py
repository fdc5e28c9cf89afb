"""What every Python reader reports, as the readers in other languages do."""

import json
import time


class Meter:
    """Reads WARM records, then measures the process's CPU over each of SEGMENTS segments of SEGMENT records.

    Then prints JSON, microseconds a record for each segment; and at the last live record JSON again, the milliseconds from put to here of
    each live record.
    """

    def __init__(self, warm, segment, segments):
        self._count = 0
        self._next = int(warm)
        self._segment = int(segment)
        self._last = int(warm) + int(segment) * int(segments)
        self._marks = []
        self._millis = []

    def add(self, batch):
        """Count a batch of records' data. Live records come only after the first line was printed."""
        if len(self._marks) and self._count >= self._last:
            self._add_live(batch)
            return
        self._count += len(batch)
        if self._count >= self._next:
            self._marks.append((time.process_time(), self._count))
            self._next += self._segment
            while self._next <= self._count:
                self._next += self._segment
        if self._count >= self._last:
            spans = zip(self._marks, self._marks[1:], strict=False)
            print(json.dumps([(cpu - before) / (n - m) * 1e6 for (before, m), (cpu, n) in spans]), flush=True)

    def _add_live(self, batch):
        now = time.monotonic_ns()
        for data in batch:
            put = int.from_bytes(data[:8])
            if put == 0:
                print(json.dumps(self._millis), flush=True)
                return
            self._millis.append((now - put) / 1e6)
