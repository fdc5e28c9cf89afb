"""The errors that the endpoint returns, with the service's names and messages."""


class ApiError(Exception):
    """An error response: `code` is the service's exception name, `status` the HTTP status."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


def invalid_argument(message: str) -> ApiError:
    """Return the error for a request that is well-formed but cannot be carried out."""
    return ApiError("InvalidArgumentException", message)


def not_found(message: str) -> ApiError:
    """Return the error for a stream, shard or consumer that does not exist."""
    return ApiError("ResourceNotFoundException", message)


def in_use(message: str) -> ApiError:
    """Return the error for a stream, shard or consumer whose state does not allow the request, or whose name is taken."""
    return ApiError("ResourceInUseException", message)


def limit_exceeded(message: str) -> ApiError:
    """Return the error for a count or rate of control operations at its limit."""
    return ApiError("LimitExceededException", message)


def throughput_exceeded(message: str) -> ApiError:
    """Return the error for a shard whose data rate is at its limit."""
    return ApiError("ProvisionedThroughputExceededException", message)


def invalid_input(message: str) -> ApiError:
    """Return the error for a field that is missing, too long, too big or not one of the allowed values."""
    return ApiError("ValidationException", f"1 validation error detected: {message}")


def check_dry_run(is_dry_run: bool) -> None:
    """Raise DryRunOperationException if the call was a dry run. Call this when the operation would otherwise be carried out."""
    if is_dry_run:
        raise ApiError("DryRunOperationException", "The request would have succeeded, but the DryRun parameter is set.")
