"""Helpers for tests of plugins and jobs. Start with a contract: subclass it, and pytest runs the contract of its kind of plugin.

`run_virtual` runs a coroutine on virtual time. A Kinesis endpoint for tests is in `recordpublisher.local`: start with `serve_in_thread`.
"""

from .acknowledging_publisher_contract import AcknowledgingPublisherCase, AcknowledgingPublisherContract
from .committing_sink_contract import CommittingSinkContract
from .conditional_store_contract import ConditionalStoreCase, ConditionalStoreContract
from .contract import Contract
from .publisher_contract import PublisherCase, PublisherContract
from .sink_contract import SinkCase, SinkContract
from .tracker_contract import TrackerCase, TrackerContract
from .virtual_time import EPOCH_MS, VirtualClock, VirtualLoop, run_virtual

__all__ = [
    "EPOCH_MS",
    "AcknowledgingPublisherCase",
    "AcknowledgingPublisherContract",
    "CommittingSinkContract",
    "ConditionalStoreCase",
    "ConditionalStoreContract",
    "Contract",
    "PublisherCase",
    "PublisherContract",
    "SinkCase",
    "SinkContract",
    "TrackerCase",
    "TrackerContract",
    "VirtualClock",
    "VirtualLoop",
    "run_virtual",
]
