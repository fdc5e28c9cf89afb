"""Polling with GetRecords."""
