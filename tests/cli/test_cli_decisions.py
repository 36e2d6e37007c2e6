"""compare --margin and plan: the numbers of the library."""

import pytest

from command_line import output, records
from torchrankmetrics import RankTable
from torchrankmetrics.cli import main
from torchrankmetrics.inference import equivalence, plan

pytestmark = pytest.mark.filterwarnings("ignore::torchrankmetrics.RankMetricWarning")


def test_margin_gives_the_equivalence_of_the_library(cli_folder, capsys):
    options = ["-m", "mrr,mr", "--margin", "0.2", "--cluster", "sample_id", "--permutations", "999"]
    got = records(capsys, "compare", "a.npz", "b.npz", *options)
    for row in got:
        a, b = RankTable.load("a.npz"), RankTable.load("b.npz")
        found = equivalence(a, b, row["metric"], margin=0.2, cluster="sample_id", permutations=999)
        assert row["a - b"] == found.difference
        assert (row["low"], row["high"]) == (found.low, found.high)
        assert row["p equivalent"] == found.p_equivalent
        assert (row["equivalent"] == "yes") == found.equivalent
    assert [row["metric"] for row in got] == ["mrr", "mr"]


def test_plan_gives_that_of_the_library(cli_folder, capsys):
    (row,) = records(capsys, "plan", "a.npz", "b.npz", "-m", "mrr", "--difference", "0.05", "--power", "0.9")
    planned = plan(RankTable.load("a.npz"), RankTable.load("b.npz"), "mrr")
    assert row["tasks needed"] == planned.tasks_for(0.05, 0.9)
    assert row["power now"] == planned.power(0.05)
    assert row["smallest found now"] == planned.detectable(0.9)


def test_plan_of_folders_plans_seeds(cli_folder, capsys):
    for model in ("a", "b"):
        (cli_folder / model).mkdir()
        for seed, source in enumerate(("a.npz", "b.npz")):
            (cli_folder / model / f"{seed}.npz").write_bytes((cli_folder / source).read_bytes())
    text = output(capsys, "plan", "a", "b", "--difference", "1e-9")
    assert "none is enough" in text
    assert "2 runs of each at hand" in text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["compare", "a.npz", "b.npz", "--margin", "0"], "margin must be above 0"),
        (["compare", "a.npz", "b.npz", "plain.npz", "--margin", "0.1"], "--margin is of two models"),
        (["plan", "a.npz", "b.npz", "-d", "0"], "--difference must be a number other than 0"),
        (["plan", "a.npz", "b.npz", "-d", "0.1", "--power", "1"], "--power must be between 0 and 1"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(cli_folder, capsys, arguments, told):
    assert main(arguments) == 2
    assert told in capsys.readouterr().err
