"""Modules that need the AWS SDK, imported at their first use: credentials, subscriptions, other services. Start at `transport.py`."""
