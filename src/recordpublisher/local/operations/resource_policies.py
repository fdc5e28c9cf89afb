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
    """Show the policy of a stream or consumer; an empty one when there is none (recorded from AWS by LocalStack's tests, August 2025)."""
    return {"Policy": find_resource(account, request.resource_arn).policy or "{}"}


def delete_resource_policy(account: Account, request: requests.DeleteResourcePolicy) -> None:
    """Remove the policy of a stream or consumer."""
    resource = find_resource(account, request.resource_arn)
    if resource.policy is None:
        raise not_found(f"No resource policy found for resource ARN {request.resource_arn}.")
    resource.policy = None
