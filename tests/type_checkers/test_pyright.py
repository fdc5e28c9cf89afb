"""pyright infers of typed records what mypy does; mypy checks the same file in `make check`."""

import pytest

from processes.pyright import run_pyright


@pytest.mark.servers  # `make servers` installs it
def test_pyright_infers_the_types_of_values_without_a_cast():
    ended = run_pyright("pyrightconfig.json")

    assert ended.returncode == 0, ended.stdout
    assert "0 errors" in ended.stdout
