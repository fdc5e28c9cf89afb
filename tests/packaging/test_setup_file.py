"""setup.py, which pip runs before it reads which Python is needed."""

import subprocess
import sys

from processes.command_line import ROOT

AS_PYTHON_3_10 = (
    "import sys; sys.version_info, sys.version = (3, 10, 1), '3.10.1 (main)'; exec(open('setup.py').read())"
)


def test_an_older_python_is_told_in_one_sentence():
    done = subprocess.run([sys.executable, "-c", AS_PYTHON_3_10], capture_output=True, text=True, cwd=ROOT, check=False)

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "recordpublisher needs Python 3.11 or newer, and this is 3.10.1"
    assert "Traceback" not in done.stderr
