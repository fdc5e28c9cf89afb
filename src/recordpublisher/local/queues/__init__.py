"""Queues, which deliver a stream record by record. Start reading in deliveries.py."""
