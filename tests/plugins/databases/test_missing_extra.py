"""Without SQLAlchemy the error says what to install, whichever module is imported first."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["sinks.sql", "stores.sql_store"])
def test_the_missing_extra_is_named(module):
    code = f"import sys; sys.modules['sqlalchemy'] = None; import recordpublisher.plugins.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "SQLite alone the extra 'sql'" in done.stderr
    assert "ImportError: PostgreSQL needs the extra 'postgresql': pip install" in done.stderr
