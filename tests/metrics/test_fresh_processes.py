"""Compiled, scripted and cast by a host, in processes that have computed nothing else: the values do not change."""

import json
import os
from typing import Any

import pytest

from scripts import ROOT, forked

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="each program runs in a fork")
QUICK = ["script", "cast", "compile.step"]
SLOW = ["compile.modules", "compile.functions", "compile.lightning", "script.lightning", "cast.lightning"]


def run(*arguments: str) -> list[dict[str, Any]]:
    ended = forked(ROOT / "tests" / "helpers" / "fresh_programs.py", *arguments, cwd=ROOT, anew=["torchrankmetrics"])
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "recompile_limit" not in ended.stderr  # Dynamo gives up on such a function and warns
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]


@pytest.mark.parametrize(
    "arguments",
    [
        QUICK,
        *(pytest.param([program], marks=pytest.mark.slow) for program in SLOW),
        pytest.param(["--without-numba", "compile.functions"], marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_a_host_changes_no_value(arguments: list[str]) -> None:
    results = run(*arguments)
    assert {result["program"] for result in results} == {*arguments} - {"--without-numba"}
    for result in results:
        assert "alone" in result, result["converted"]
        assert result["converted"] == result["alone"], result["program"]
