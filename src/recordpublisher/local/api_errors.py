"""The errors that the endpoint returns, with the service's names and texts."""


class ApiError(Exception):
    """An error response: `code` is the service's exception name, `status` the HTTP status."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


def invalid_argument(message: str) -> ApiError:
    """The request is well-formed but cannot be carried out."""
    return ApiError("InvalidArgumentException", message)


def not_found(message: str) -> ApiError:
    """A stream, shard or consumer does not exist."""
    return ApiError("ResourceNotFoundException", message)


def in_use(message: str) -> ApiError:
    """A stream, shard or consumer exists but is in another state."""
    return ApiError("ResourceInUseException", message)


def limit_exceeded(message: str) -> ApiError:
    """A count or rate of control operations is at its limit."""
    return ApiError("LimitExceededException", message)


def throughput_exceeded(message: str) -> ApiError:
    """A shard's data rate is at its limit."""
    return ApiError("ProvisionedThroughputExceededException", message)


def invalid_input(message: str) -> ApiError:
    """A field is missing, too long, too big or not one of the allowed values."""
    return ApiError("ValidationException", f"1 validation error detected: {message}")


def check_dry_run(is_dry_run: bool) -> None:
    """Raise DryRunOperationException for a call that would have been carried out, if it was only a question."""
    if is_dry_run:
        raise ApiError("DryRunOperationException", "The request would have succeeded, but the DryRun parameter is set.")
