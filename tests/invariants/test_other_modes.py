"""Tests of the core once more inside inference mode and with the default device "meta".

Lightning evaluates in inference mode on NCCL, which a test on a CPU never enters. On "meta" a
tensor has no values: a tensor that the library creates without a device raises. The first case of
every test function runs; with ``HYPOTHESIS_PROFILE=explore`` every case.
"""

import os
from pathlib import Path

import pytest

from scripts import forked

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
PLACES = (
    "kg",
    "metrics",
    "ranking",
    "table",
    "invariants/test_invariants.py",
    "invariants/test_hard_inputs.py",
)
# files that start processes, use NumPy only, or draw many cases
IGNORED = (
    *("ranking/test_candidate_parallel.py", "ranking/test_embedding_ranks.py"),
    *("metrics/test_host_scripts.py", "metrics/test_sync*.py", "metrics/test_values.py"),
)


def test_the_core_passes_in_inference_mode_with_another_default_device() -> None:
    ignored = [path for pattern in IGNORED for path in TESTS.glob(pattern)]
    options = ["--inference-mode", "--default-device", "meta", "-q", "-p", "no:cacheprovider"]
    options += [f"--ignore={path}" for path in ignored]
    options += ["-k", "not processes"]
    environment = {}
    if os.environ.get("HYPOTHESIS_PROFILE") != "explore":
        options, environment = [*options, "--first-cases"], {"HYPOTHESIS_PROFILE": "few"}
    files = [str(TESTS / place) for place in PLACES]
    result = forked("-m", "pytest", *options, *files, cwd=TESTS.parent, environment=environment)
    assert result.returncode == 0, result.stdout[-4000:]
