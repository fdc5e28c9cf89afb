"""Stores the endpoint's data in a folder, so that it survives a restart. Start at account_storage.py."""
