"""Percentiles of measured values."""


def percentiles(values):
    """p50, p90, p99 and the maximum of the values."""
    ordered = sorted(values)
    at = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    return {name: ordered[int(len(ordered) * share)] for name, share in at.items()} | {"max": ordered[-1]}
