"""RuleViolationError: a schedule broke a rule."""


class RuleViolationError(AssertionError):
    """A rule does not hold."""


def expect(holds: bool, rule: str, text: str) -> None:
    """Raises: RuleViolationError."""
    if not holds:
        raise RuleViolationError(f"{rule}: {text}")
