"""The laws on a second device, in a process of its own: hosts would pick a registered device up elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).with_name("second_device_cases.py")


def test_every_case_holds_on_a_second_device() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=CASES.parents[2])
    assert result.returncode == 0, result.stdout[-6000:]
    if not re.search(r"\d+ passed", result.stdout):
        pytest.skip(result.stdout[-500:])  # it says what the compiler lacks
