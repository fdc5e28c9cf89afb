"""The virtual loop, under the short name that the tests use."""

from recordpublisher.testing.virtual_time import EPOCH_MS, VirtualClock, VirtualLoop, run_virtual

__all__ = ["EPOCH_MS", "VirtualClock", "VirtualLoop", "run_virtual"]
