"""`python -m recordpublisher` and the `recordpublisher` command."""

import sys
from importlib.util import find_spec

from .extras import install_command


def main() -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 bad configuration, 3 alarm."""
    if find_spec("typer") is None:
        sys.stderr.write(f"recordpublisher: the command line needs the extra 'cli': {install_command('cli')}\n")
        sys.exit(2)
    from .cli.app import app

    app(prog_name="recordpublisher")


if __name__ == "__main__":
    main()
