"""The ways through the house that docs/design.md lists are the ways that are taken."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import torchrankmetrics
from torchrankmetrics import RankCollection, RankTable, rank_scores
from torchrankmetrics.cli.app import app

PACKAGE = Path(torchrankmetrics.__file__).parent
DESIGN = (Path(__file__).parents[2] / "docs" / "design.md").read_text()
SCORES, TARGET = torch.arange(2400.0).sin().view(40, 60), torch.arange(40)


def log_adjusted_mrr(_: Path) -> None:
    collection = RankCollection(["adjusted_mrr"])
    collection.update(SCORES, TARGET, exclude=torch.tensor([[0, 1], [5, 6]]))
    collection.compute()


def intervals_of_clusters(_: Path) -> None:
    collection = RankCollection(["hits_at_10", "adjusted_hits_at_10"])
    collection.update(SCORES, TARGET, group=torch.arange(40) // 2)
    collection.confidence_intervals(cluster="group")


def report(folder: Path) -> None:
    RankTable.from_ranks(rank_scores(SCORES, TARGET)).save(folder / "ranks.npz")
    result = CliRunner().invoke(app, ["report", str(folder / "ranks.npz"), "-m", "mrr"])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("way", "walk", "most"),
    [
        ("Scores to the logged adjusted MRR", log_adjusted_mrr, 14),
        ("`confidence_intervals`", intervals_of_clusters, 10),
        ("`torchrankmetrics report`", report, 9),
    ],
    ids=["scores", "intervals", "report"],
)
def test_every_file_of_a_listed_way_is_walked_through(
    way: str, walk: Callable[[Path], None], most: int, tmp_path: Path
) -> None:
    line = DESIGN.split(f"- **{way}**: ")[1].split("\n- ")[0].split("\n\n")[0]
    listed = re.findall(r"`([a-z_/]+)`", line)
    assert 1 < len(listed) <= most
    walked: set[str] = set()

    def see(frame: object, event: str, _: object) -> None:
        file = Path(frame.f_code.co_filename)  # type: ignore[attr-defined]
        if event == "call" and PACKAGE in file.parents:
            walked.add(str(file.relative_to(PACKAGE).with_suffix("")))

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        walk(tmp_path)
    finally:
        sys.setprofile(before)
    assert [name for name in listed if not any(f"{one}/".startswith(f"{name}/") for one in walked)] == []
