"""The global watermark of a group, whose other workers are a value that the test sets."""

from recordpublisher.fetcher.global_watermark_rules import raised_watermark
from recordpublisher.fetcher.watermarks import ShardsStatus, WatermarkTracker


class OtherWorkers(WatermarkTracker):
    """`lowest`, `highest`: the lowest and the highest watermark of the others; without a lowest one the global watermark is not known."""

    def __init__(self, lowest=None, highest=None):
        self.lowest = lowest
        self.highest = highest
        self._global = None
        self._stated = ShardsStatus.IDLE, None

    @property
    def has_others(self):
        return True

    @property
    def waits_for_others(self):
        status, watermark = self._stated
        return status is ShardsStatus.IDLE or (watermark is not None and watermark > self._global)

    def report(self, status, watermark):
        self._stated = status, watermark
        known = [self.lowest] if status is ShardsStatus.IDLE else [self.lowest, watermark]
        self._global = raised_watermark(self._global, None if None in known else min(known))
        return self._global

    def current(self):
        return self._global

    def max_shard_watermark(self):
        return self.highest
