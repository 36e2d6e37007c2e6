"""CSV, TSV and data frames of ranks; ranks without numbers of candidates."""

import re
import tracemalloc
import warnings

import numpy as np
import pytest
import torch

from torchrankmetrics import RankCollection, RankMetricWarning, Ranks, RankTable, compare, evaluate
from torchrankmetrics.cli import main
from torchrankmetrics.study import RankStudy

pandas = pytest.importorskip("pandas")
COLUMNS = {
    "optimistic": [1, 4, 2],
    "pessimistic": [3, 4, 2],
    "num_candidates": [10, 9, 10],
    "side": [1, 2, 0],
    "group": [5, -(2**63), 2**62 + 1],
    "sample_id": [0, 1, 2],
    "query": [3, 3, -(2**63)],
    "weight": [0.5, 1.0, 2.0],
}
FULL = RankTable.from_numpy(COLUMNS)


def write(path, header, *lines, encoding="utf-8"):
    path.write_text("\n".join([header, *lines]) + "\n", encoding=encoding)
    return path


@pytest.mark.parametrize("separator", [",", "\t"])
def test_files_have_any_order_of_columns_and_ignore_others_with_one_notice(tmp_path, separator):
    order = [
        "",
        "weight",
        "name",
        "side",
        "query",
        "pessimistic",
        "num_candidates",
        "sample_id",
        "group",
        "optimistic",
    ]
    words = {
        **COLUMNS,
        "": range(3),
        "name": ["x", '"a, b"', "z"],
        "side": ["head", " Tail", ""],
        "group": [5, "", 2**62 + 1],
    }
    words["query"] = ["3", "3.0", "nan"]
    lines = [separator.join(str(words[name][i]) for name in order) for i in range(3)]
    path = write(tmp_path / "ranks.txt", separator.join(order), *lines, "", encoding="utf-8-sig")
    with pytest.warns(
        RankMetricWarning, match=r"ranks.txt: ignored the columns \(unnamed\), name$"
    ):
        table = RankTable.load(path)
    assert torch.equal(table.rows, FULL.rows)


@pytest.mark.parametrize(
    "table",
    [
        FULL,
        RankTable.from_ranks(Ranks([1, 2], None, 5, filtered=True), query=[1, 1]),
        RankTable.from_ranks(Ranks([3, 1])),
    ],
    ids=["all columns", "queries", "ranks alone"],
)
def test_frames_of_all_columns_come_back(table):
    assert torch.equal(RankTable.from_pandas(table.to_pandas()).rows, table.rows)


def test_frames_have_words_for_sides_and_gaps_for_groups():
    assert FULL.to_pandas()["side"].tolist() == ["head", "tail", "none"]
    assert FULL.to_pandas()["group"].isna().tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["rank", "1", "2.5"],
            "rank must contain integers, got 2.5 in line 3; ranks of ties .* optimistic and pessim",
        ),
        (["rank", "1", "one"], "rank must contain numbers; got 'one' in line 3"),
        (
            ["rank,group", "1,one"],
            "group must contain numbers: number names .*; got 'one' in line 2",
        ),
        (["rank;group", "1;2"], "cells must be separated by commas or tabs, got 'rank;group'"),
        (["rank,name", '1,"a', "2,b", "3,c"], "line 2: a quote is not closed"),
        (["rank,name", "1,x", '2,"a"b'], "line 3: ',' expected after '\"'"),
        (
            ["rank,num_candidates", "3,-1"],
            "num_candidates must be at least 1; leave an unknown column out; got -1 in line 2",
        ),
        (["rank", "1", "1_0"], "rank must contain numbers; got '1_0' in line 3"),
        (["rank", "1", "\u0661\u0662"], "rank must contain numbers; got .* in line 3"),
        (["rank,weight", "1,1_0.5"], "weight must contain numbers; got '1_0.5' in line 2"),
        (["rank", "1", "1" * 401], "rank must have at most 400 characters; got 401 in line 3"),
        (["Rank"], "columns must contain rank, .*; got Rank; write names in lower case"),
        (
            ["rank,num_candidates", "3,2"],
            "ranks must lie between 1 and num_candidates; line 2 has optimistic 3",
        ),
        (
            ["rank,num_candidates", "3,"],
            "num_candidates must have a value in every row, got none in line 2",
        ),
        (["rank,group", "", "1,2", "", "1"], "line 5 must have 2 cells as the header, got 1"),
        (["rank,nan", "1,true", "2,yes"], "nan must contain numbers, or true and false"),
        (["rank,nan", "1,true", "2,3"], "nan must be true or false; got 3 in line 3"),
        (["rank,sample_id", "1,1e300"], "sample_id must contain integers"),
        (
            ["rank,filtered", "1,true"],
            "filtered and raw must be false in rows without a query; got True in line 2",
        ),
        (
            ["optimistic", "1"],
            r"columns must contain rank, or optimistic and pessimistic \(with ties\); got optimis",
        ),
    ],
)
def test_wrong_files_name_the_column(lines, message, tmp_path):
    with pytest.raises(ValueError, match=rf"ranks\.csv: {message}"):
        RankTable.load(write(tmp_path / "ranks.csv", *lines))


def test_other_objects_than_frames_of_different_columns_and_large_files_are_errors(tmp_path):
    with pytest.raises(
        TypeError, match=r"frame must be a pandas\.DataFrame, got dict; from_numpy takes a dict"
    ):
        RankTable.from_pandas({"rank": [1]})
    with pytest.raises(ValueError, match="columns must have different names, got rank, rank"):
        RankTable.from_pandas(pandas.DataFrame([[1, 2]], columns=["rank", "rank"]))
    path = write(tmp_path / "ranks.csv", "rank", *["1"] * 100)
    # before it is parsed
    with pytest.raises(ValueError, match="is not loaded: it would take 33936 bytes"):
        RankTable.load(path, max_bytes=10_000)


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
@pytest.mark.parametrize("num_others", [0, 50])
def test_the_memory_of_csv_is_limited_whatever_its_lines_and_columns(tmp_path, end, num_others):
    names = ["rank", *(f"column{i}" for i in range(num_others))]
    row = ["12345", *["1234567"] * num_others]
    content = end.join([",".join(names), *[",".join(row)] * 400])
    path = tmp_path / "ranks.csv"
    path.write_bytes(content.encode())
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert RankTable.load(path).num_tasks == 400
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    with pytest.raises(ValueError, match="is not loaded: it would take") as error:
        RankTable.load(path, max_bytes=len(content))
    needed = int(re.search(r"take (\d+) bytes", str(error.value))[1])
    assert 0.5 * peak < needed < 2 * peak


def test_a_quoted_cell_may_have_several_lines(tmp_path):
    path = write(tmp_path / "ranks.csv", "rank,name", '1,"a', 'b"', "2,c")
    with pytest.warns(RankMetricWarning, match="ignored the columns name"):
        assert RankTable.load(path).rows[:, 0].tolist() == [1, 2]


@pytest.mark.parametrize("metric", ["amri", "z_mrr", "p_mrr", "normalized_mr", "auc", "z_rr"])
def test_without_candidates_other_values_raise(metric):
    low, high = torch.tensor([1, 4, 2, 9]), torch.tensor([3, 4, 2, 9])
    with pytest.raises(ValueError, match="num_candidates is needed"):
        evaluate(Ranks(low, high), metrics=metric)


def test_without_candidates_base_values_are_those_with_candidates(tmp_path):
    low, high = torch.tensor([1, 4, 2, 9]), torch.tensor([3, 4, 2, 9])
    unknown, known = Ranks(low, high), Ranks(low, high, 50)
    metrics = [
        "mrr",
        "mr",
        "hits@3",
        "gmr",
        "median_rank",
        "pessimistic_mrr",
        "expected_mrr",
        "count",
        "tie_rate",
    ]
    assert evaluate(unknown, metrics=metrics) == evaluate(known, metrics=metrics)
    assert evaluate(unknown, metrics="mrr")["mrr"] == pytest.approx(
        (1 / 2 + 1 / 4 + 1 / 2 + 1 / 9) / 4
    )
    assert list(evaluate(unknown)) == ["mrr", "mr", "hits_at_1", "hits_at_3", "hits_at_10"]
    RankTable.from_ranks(unknown).save(tmp_path / "ranks.npz")
    both = RankTable.concatenate(
        [RankTable.load(tmp_path / "ranks.npz"), RankTable.from_ranks(known)]
    )
    both.save(tmp_path / "both.npz")
    assert torch.equal(RankTable.load(tmp_path / "both.npz").rows, both.rows)
    with pytest.raises(ValueError, match="num_candidates is needed"):
        evaluate(both, metrics="amri")
    metric = RankCollection(["mrr"])
    metric.update(unknown)
    assert "numbers of candidates unknown" in str(metric.summary())
    assert np.isnan([row.index for row in metric.summary().rows]).all()
    with pytest.raises(ValueError, match="num_candidates must be at least 1"):
        Ranks(low, high, -1)


def test_arrays_series_and_frames_are_compared():
    a, b = [1, 2, 1, 3, 5] * 4, [2, 2, 1, 4, 4] * 4
    expected = compare(Ranks(a, None, 50), Ranks(b, None, 50), ["mrr", "hits@3"])
    for first, second in ((a, np.array(b)), (pandas.Series(a), torch.tensor(b))):
        assert compare(first, second, ["mrr", "hits@3"]) == expected
    frames = [pandas.DataFrame({"rank": ranks, "sample_id": range(20)}) for ranks in (a, b)]
    assert compare(*frames, "mrr").p_value == pytest.approx(expected["mrr"].p_value, abs=0.02)
    named = {"a": a, "b": np.array(b), "c": [3] * 20}
    assert compare(named, "mrr")["mrr", "a", "b"].difference == expected["mrr"].difference
    assert (
        evaluate(frames[0], metrics="mr")
        == evaluate(a, metrics="mr")
        == evaluate(pandas.Series(a), metrics="mr")
    )
    with pytest.raises(
        TypeError, match=r"a must be integers, got torch.float64; for ties pass Ranks\(optimi"
    ):
        compare(np.array([1.5, 2]), [1, 2])
    with pytest.raises(ValueError, match="a and b differ in num_candidates"):
        compare(Ranks(a, None, 50), b)


def test_commands_read_csv(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    for name in "ab":
        ranks = generator.integers(1, 20, 60)
        write(
            tmp_path / f"{name}.csv",
            "sample_id,rank,note",
            *(f"{i},{rank},x" for i, rank in enumerate(ranks)),
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        difference = compare(RankTable.load("a.csv"), RankTable.load("b.csv"), "mrr").difference
        assert "60 tasks among an unknown number of candidates" in str(
            RankStudy.open("{model}.csv").table("mrr")
        )
    for arguments, words in (
        ("compare a.csv b.csv", f"{difference:.4f}"),
        ("report a.csv b.csv", "a.csv: 60 ranks, numbers of candidates unknown"),
        ("study {model}.csv -m mrr", "among an unknown number of candidates"),
    ):
        assert main(arguments.split()) == 0
        out, err = capsys.readouterr()
        assert words in out
        assert "‡" not in out
        assert "ignored the columns note" in out + err
