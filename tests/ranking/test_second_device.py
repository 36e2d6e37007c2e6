"""The invariants on a second device, in a process of its own: hosts would pick a registered device up elsewhere."""

import re
from pathlib import Path

import pytest

from scripts import forked

CASES = Path(__file__).with_name("second_device_cases.py")


def test_every_case_holds_on_a_second_device() -> None:
    result = forked("-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES), cwd=CASES.parents[2])
    assert result.returncode == 0, result.stdout[-6000:]
    if not re.search(r"\d+ passed", result.stdout):
        pytest.skip(result.stdout[-500:])  # the reason
