"""Registered consumers of enhanced fan-out: register, wait until active, deregister. Start at `consumer_registrar.py`."""
