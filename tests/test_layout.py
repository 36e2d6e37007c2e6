"""Imports point one way, and the core needs no extra."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "torchrankmetrics"
EXTRAS = ("pytorch_lightning", "lightning", "pykeen", "matplotlib", "numba", "sklearn")
FORBIDDEN = {
    "ranking": ("torchmetrics", "torchrankmetrics.theory", "torchrankmetrics.metrics", *EXTRAS[:4]),
    "theory": ("torchmetrics", "torchrankmetrics.ranking", "torchrankmetrics.metrics", *EXTRAS),
    "metrics": ("torchrankmetrics.integrations", *EXTRAS[:3], "numba"),
}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the direction"
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("folder", sorted(FORBIDDEN))
def test_imports_point_one_way(folder: str) -> None:
    files = list((PACKAGE / folder).rglob("*.py"))
    assert files
    for path in files:
        for name in imported(path):
            for forbidden in FORBIDDEN[folder]:
                assert not f"{name}.".startswith(f"{forbidden}."), f"{path.name} imports {name}"


def test_core_runs_without_extras() -> None:
    """A bare installation evaluates: extras are made unimportable (but matplotlib, which torchmetrics looks for)."""
    code = f"""
import sys
for name in {tuple(name for name in EXTRAS if name != "matplotlib")!r}:
    sys.modules[name] = None
import torch, torchrankmetrics as trm
metric = trm.RankCollection()
metric.update(torch.eye(3), torch.arange(3))
print(metric.compute()["mrr"].item(), trm.evaluate([1, 2], num_candidates=4)["mr"])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["1.0", "1.5"]


def test_files_have_one_reason_to_exist() -> None:
    long = {path.name: lines for path in PACKAGE.rglob("*.py") if (lines := len(path.read_text().splitlines())) > 320}
    assert not long
