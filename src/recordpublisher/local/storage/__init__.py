"""Keeps what the endpoint holds in a folder, so that it survives a restart. Start reading in account_storage.py."""
