"""Percentiles of what was measured one by one."""


def percentiles(values):
    """Half of them are below `p50`, and so on."""
    ordered = sorted(values)
    at = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    return {name: ordered[int(len(ordered) * share)] for name, share in at.items()} | {"max": ordered[-1]}
