"""Compiled, scripted and cast by a host, in processes that have computed nothing else: the values do not change."""

import json
import os
from typing import Any

import pytest

from scripts import ROOT, forked

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="each program runs in a fork")
KINDS = ("metric", "counts", "collection", "plain")
COMPILED = [
    *(f"compile.{step}.{kind}" for step in ("update", "forward", "compute") for kind in ("collection", "plain")),
    *(f"compile.module.{kind}" for kind in ("metric", "collection")),
    *(f"compile.{function}" for function in ("rank_scores", "rank_embeddings", "accumulator", "evaluate")),
    "compile.everything.all",
]
LIGHTNING = ["compile.lightning", "script.lightning", "cast.lightning"]
OTHER = [f"{host}.{kind}" for host in ("script", "cast") for kind in KINDS]
QUICK = ["script.collection", "cast.collection", "compile.update.plain"]  # the others take more than a minute


def run(*arguments: str) -> dict[str, dict[str, Any]]:
    ended = forked(ROOT / "tests" / "helpers" / "fresh_programs.py", *arguments, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "recompile_limit" not in ended.stderr  # Dynamo gives up on such a function and warns
    found = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    return {result["program"]: result for result in found}


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    return run(*sorted({*COMPILED, *OTHER} - {*QUICK}))


@pytest.fixture(scope="module")
def quick_results() -> dict[str, dict[str, Any]]:
    return run(*QUICK)


def check(result: dict[str, Any]) -> None:
    assert "alone" in result, result["converted"]
    assert result["converted"] == result["alone"]


@pytest.mark.parametrize("program", QUICK)
def test_a_quick_host_changes_no_value(program: str, quick_results: dict[str, dict[str, Any]]) -> None:
    check(quick_results[program])


@pytest.mark.slow
@pytest.mark.parametrize("program", sorted({*COMPILED, *OTHER} - {*QUICK}))
def test_a_host_changes_no_value(program: str, results: dict[str, dict[str, Any]]) -> None:
    check(results[program])


@pytest.mark.slow
def test_torch_compile_changes_no_value_without_numba() -> None:
    (result,) = run("--without-numba", "compile.everything.all").values()
    check(result)


@pytest.mark.slow
@pytest.mark.parametrize("program", LIGHTNING)
def test_lightning_changes_no_value(program: str) -> None:
    pytest.importorskip("pytorch_lightning", reason="needs the extra 'lightning'")
    check(run(program)[program])
