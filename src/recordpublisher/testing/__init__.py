"""What plugin authors and users test with: the publisher's contract as tests, and asyncio on virtual time.

A Kinesis to test against is `recordpublisher.local.serve_in_thread`.
"""

from .publisher_contract import PublisherCase, PublisherContract
from .virtual_time import EPOCH_MS, VirtualClock, VirtualLoop, run_virtual

__all__ = ["EPOCH_MS", "PublisherCase", "PublisherContract", "VirtualClock", "VirtualLoop", "run_virtual"]
