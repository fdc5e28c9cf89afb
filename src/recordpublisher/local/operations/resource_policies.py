"""Put-, Get- and DeleteResourcePolicy: policies are stored and shown, and decide nothing here."""

import msgspec

from ..api_errors import invalid_argument, not_found
from ..requests import settings as requests
from ..streams.account import Account
from .tags import find_resource


def put_resource_policy(account: Account, request: requests.PutResourcePolicy) -> None:
    """Store the policy of a stream or consumer."""
    try:
        msgspec.json.decode(request.policy, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise invalid_argument(f"The policy is no JSON object: {error}") from error
    find_resource(account, request.resource_arn).policy = request.policy


def get_resource_policy(account: Account, request: requests.GetResourcePolicy) -> object:
    """Show the policy of a stream or consumer."""
    return {"Policy": _require_policy(account, request.resource_arn)}


def delete_resource_policy(account: Account, request: requests.DeleteResourcePolicy) -> None:
    """Remove the policy of a stream or consumer."""
    _require_policy(account, request.resource_arn)
    find_resource(account, request.resource_arn).policy = None


def _require_policy(account: Account, arn: str) -> str:
    policy = find_resource(account, arn).policy
    if policy is None:
        raise not_found(f"No resource policy found for resource ARN {arn}")
    return policy
