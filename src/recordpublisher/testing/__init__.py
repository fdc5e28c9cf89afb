"""Helpers for tests of plugins and jobs.

- `record` and `batch_of` make records and batches, as handlers and sinks get them.
- `archive_of` lets a job read archived records.
- There is a contract (a set of tests) for each kind of plugin. Subclass it, and run pytest.
- `run_virtual` runs a coroutine on virtual time.

A Kinesis endpoint for tests is in `recordpublisher.local`: start with `serve_in_thread`.
"""

from .archives import archive_of
from .conditional_store_contract import ConditionalStoreCase, ConditionalStoreContract
from .contract import Contract
from .deserializer_contract import DeserializerCase, DeserializerContract
from .publisher_contract import PublisherContract
from .publisher_runs import PublisherCase
from .queue_source_contract import QueueSourceCase, QueueSourceContract
from .records import batch_of, record
from .sink_contract import CommittingSinkContract, SinkCase, SinkContract
from .virtual_time import EPOCH_MS, VirtualClock, VirtualLoop, run_virtual

__all__ = [
    "EPOCH_MS",
    "CommittingSinkContract",
    "ConditionalStoreCase",
    "ConditionalStoreContract",
    "Contract",
    "DeserializerCase",
    "DeserializerContract",
    "PublisherCase",
    "PublisherContract",
    "QueueSourceCase",
    "QueueSourceContract",
    "SinkCase",
    "SinkContract",
    "VirtualClock",
    "VirtualLoop",
    "archive_of",
    "batch_of",
    "record",
    "run_virtual",
]
