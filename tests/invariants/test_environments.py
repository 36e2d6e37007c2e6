"""A Numba that cannot be used; other default devices are in test_other_modes.py, threads in test_threads.py."""

import pytest

from scripts import ROOT, forked

COUNT = """
import warnings
import torch
warnings.simplefilter("always")
from torchrankmetrics import rank_scores
for _ in range(2):
    ranks = rank_scores(torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([0]))
print(ranks.optimistic.item())
try:
    rank_scores(torch.eye(3), torch.arange(3), backend="numba")
except ImportError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "environment", "why"),
    [
        ("", {"NUMBA_DISABLE_JIT": "1"}, "NUMBA_DISABLE_JIT"),
        # as it does beside a NumPy that is too new for it
        ("Numba needs NumPy 2.3 or less", {}, "Numba needs NumPy"),
    ],
)
def test_where_numba_is_unusable_torch_counts_with_one_warning(tmp_path, before, environment, why):
    pytest.importorskip("numba")
    if before:
        (tmp_path / "numba").mkdir()
        (tmp_path / "numba" / "__init__.py").write_text(f"raise ImportError({before!r})")
        before = f"import sys; sys.path.insert(0, {str(tmp_path)!r})"
    anew = ["torchrankmetrics", "numba"]
    result = forked("-c", before + COUNT, cwd=ROOT, environment=environment, anew=anew)
    assert result.returncode == 0, result.stderr
    first, second = result.stdout.splitlines()
    assert first == "2"
    assert why in second
    assert result.stderr.count("RankMetricWarning") == 1
    assert why in result.stderr
