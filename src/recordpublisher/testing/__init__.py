"""Helpers for tests of plugins and jobs. Start with `PublisherContract`: subclass it, and pytest runs the contract of publishers.

`run_virtual` runs a coroutine on virtual time. A Kinesis endpoint for tests is in `recordpublisher.local`: start with `serve_in_thread`.
"""

from .publisher_contract import PublisherCase, PublisherContract
from .virtual_time import EPOCH_MS, VirtualClock, VirtualLoop, run_virtual

__all__ = ["EPOCH_MS", "PublisherCase", "PublisherContract", "VirtualClock", "VirtualLoop", "run_virtual"]
