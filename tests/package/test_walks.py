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
WAYS = ("Scores to the logged adjusted MRR", "`confidence_intervals`", "`torchrankmetrics report`")
SCORES, TARGET = torch.arange(2400.0).sin().view(40, 60), torch.arange(40)


def log_adjusted_mrr(_: Path) -> Callable[[], None]:
    collection, exclude = RankCollection(["adjusted_mrr"]), torch.tensor([[0, 1], [5, 6]])

    def walk() -> None:
        collection.update(SCORES, TARGET, exclude=exclude)
        collection.compute()

    return walk


def intervals_of_clusters(_: Path) -> Callable[[], None]:
    collection = RankCollection(["hits_at_10", "adjusted_hits_at_10"])
    collection.update(SCORES, TARGET, group=torch.arange(40) // 2)
    return lambda: collection.confidence_intervals(cluster="group")


def report(folder: Path) -> Callable[[], None]:
    RankTable.from_ranks(rank_scores(SCORES, TARGET)).save(folder / "ranks.npz")

    def walk() -> None:
        result = CliRunner().invoke(app, ["report", str(folder / "ranks.npz"), "-m", "mrr"])
        assert result.exit_code == 0, result.output

    return walk


@pytest.mark.parametrize(
    ("way", "prepared", "most"),
    [
        (WAYS[0], log_adjusted_mrr, 14),
        (WAYS[1], intervals_of_clusters, 10),
        (WAYS[2], report, 9),
    ],
    ids=["scores", "intervals", "report"],
)
def test_every_file_of_a_listed_way_is_walked_through_and_no_more_than_are_told(
    way: str, prepared: Callable[[Path], Callable[[], None]], most: int, tmp_path: Path
) -> None:
    line = DESIGN.split(f"- **{way}**: ")[1].split("\n- ")[0].split("\n\n")[0]
    listed = re.findall(r"`([a-z_/]+)`", line)
    assert 1 < len(listed) <= most
    told = re.search(r"the ways enter (\d+), (\d+) and (\d+) files", DESIGN)
    assert told is not None
    walked: set[str] = set()

    def see(frame: object, event: str, _: object) -> None:
        file = Path(frame.f_code.co_filename)  # type: ignore[attr-defined]
        if event == "call" and PACKAGE in file.parents:
            walked.add(str(file.relative_to(PACKAGE).with_suffix("")))

    prepared(tmp_path)()  # what is imported or compiled once is no part of the way
    walk, before = prepared(tmp_path), sys.getprofile()
    sys.setprofile(see)
    try:
        walk()
    finally:
        sys.setprofile(before)
    assert [name for name in listed if not any(f"{one}/".startswith(f"{name}/") for one in walked)] == []
    assert len(walked) <= int(told[WAYS.index(way) + 1])
