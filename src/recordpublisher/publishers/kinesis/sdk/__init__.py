"""What needs the AWS SDK, imported at its first use: credentials, subscriptions, other services. Start at `transport.py`."""
