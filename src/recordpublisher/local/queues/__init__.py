"""Queues, which deliver a stream record by record, and what they share with channels. Start reading in deliveries.py."""
