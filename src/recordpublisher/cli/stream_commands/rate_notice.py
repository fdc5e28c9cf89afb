"""Makes the notice of `put` that it waits for the rate limit of the stream's shards."""

from collections.abc import Mapping

from recordpublisher.publishers.log_fields import counted
from recordpublisher.publishers.properties.groups.sinks import RATE_LIMIT
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.service_limits import WRITE_BYTES_PER_SECOND, WRITE_RECORDS_PER_SECOND

MEBIBYTE = 2**20


class RateNotice:
    """Decides whether records wait for the rate limit of their shards. It owns the number of acknowledged records at the last call."""

    def __init__(self, properties: Properties) -> None:
        self._percent = properties.value(RATE_LIMIT)
        self._acknowledged = 0

    def words(self, metrics: Mapping[str, int]) -> str | None:
        """Return the notice, from the metrics of the sink; None if records do not wait for the rate limit.

        They wait for it if more records are unacknowledged than the shards take in a second, while others were acknowledged since the
        last call. If none was, the service cannot be reached, which the log reports.
        """
        before, self._acknowledged = self._acknowledged, metrics["numRecordsOut"]
        shards, waiting = metrics["shards"], metrics["outstandingRecordsCount"]
        records = shards * WRITE_RECORDS_PER_SECOND * self._percent / 100
        size = shards * WRITE_BYTES_PER_SECOND * self._percent / 100
        is_full = waiting > records or waiting * metrics["meanRecordBytes"] > size
        if not is_full or self._acknowledged == before:
            return None
        return (
            f"{counted(waiting, 'record')} wait for the rate limit: {counted(shards, 'open shard')} "
            f"{'gets' if shards == 1 else 'get'} at most {records:,.0f} records and {size / MEBIBYTE:,.1f} MiB a second "
            f"(RateLimit={self._percent}; 100 is what Kinesis takes, 1,000 records and 1 MiB a second for each shard)"
        )
