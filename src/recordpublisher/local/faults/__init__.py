"""Fault injection: planned faults, and random ones by rules with a seed. Start reading in kinds.py."""
