"""Modules that need the AWS SDK, each imported at its first use: credentials, subscriptions, other services. Start at `transport.py`."""
