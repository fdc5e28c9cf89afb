"""DescribeLimits, DescribeAccountSettings and UpdateAccountSettings."""

from ..requests import settings as requests
from ..streams.account import Account

SHARD_LIMIT = 20_000
"""Shards of provisioned streams in the large regions ("Quotas and limits", July 2025). It is shown and not enforced."""
ON_DEMAND_STREAM_LIMIT = 50
COMMITMENT_MS = 24 * 3_600_000
"""A commitment lasts for a day at least."""


def describe_limits(account: Account, request: requests.DescribeLimits) -> object:
    """Show how many shards there are and could be."""
    streams = account.streams().values()
    return {
        "ShardLimit": SHARD_LIMIT,
        "OpenShardCount": sum(len(stream.open_shards) for stream in streams if stream.mode == "PROVISIONED"),
        "OnDemandStreamCount": sum(stream.mode == "ON_DEMAND" for stream in streams),
        "OnDemandStreamCountLimit": ON_DEMAND_STREAM_LIMIT,
    }


def describe_account_settings(account: Account, request: requests.DescribeAccountSettings) -> object:
    """Show whether the account has committed itself to a minimum of throughput."""
    if account.committed_ms is None:
        return {"MinimumThroughputBillingCommitment": {"Status": "DISABLED"}}
    ends_ms = account.committed_ms + COMMITMENT_MS
    times = {"StartedAt": account.committed_ms / 1000, "EarliestAllowedEndAt": ends_ms / 1000}
    return {"MinimumThroughputBillingCommitment": {"Status": "ENABLED", **times}}


def update_account_settings(account: Account, request: requests.UpdateAccountSettings) -> object:
    """Begin or end the commitment; an end before its day is over is not refused here."""
    is_enabled = request.minimum_throughput_billing_commitment.status == "ENABLED"
    account.committed_ms = (account.committed_ms or account.clock.now_ms()) if is_enabled else None
    return describe_account_settings(account, requests.DescribeAccountSettings())
