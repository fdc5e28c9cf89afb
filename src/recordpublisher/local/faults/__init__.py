"""Misbehaviour on request. Start at `kinds.py`."""
