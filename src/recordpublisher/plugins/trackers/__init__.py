"""Trackers that carry the global watermark over processes and machines."""
