"""What `make demo` says before it installs anything: how long it takes, the disk it needs, and what is missing."""

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
from recordpublisher.demo.requirements import check_java
from recordpublisher.publishers.errors import ConfigurationError

MEGABYTES = 850
FREE_MEGABYTES = 2_000
"""While it is installed: downloads, and the package of PySpark that is built from them."""


def main(environment: Path) -> int:
    """Returns the exit code."""
    print(f"The demo needs an environment in {environment}: two to five minutes once, {MEGABYTES} MB of disk.")
    print("Then it runs for two and a half minutes.", flush=True)
    try:
        check_java()
    except ConfigurationError as error:
        print(f"Nothing is installed: {error}", file=sys.stderr)
        return 2
    free = shutil.disk_usage(Path.cwd()).free // 1_000_000
    if free < FREE_MEGABYTES:
        print(
            f"Nothing is installed: it needs {FREE_MEGABYTES} MB of free disk, and {free} MB are free", file=sys.stderr
        )
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
