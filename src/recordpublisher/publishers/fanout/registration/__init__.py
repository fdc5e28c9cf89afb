"""Consumers of enhanced fan-out: registers them, waits until they are active, deregisters them. Start at `consumer_registrar.py`."""
