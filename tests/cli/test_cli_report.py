"""report, compare and study: numbers of the library, in every format; also of retrieval runs."""

import gzip
import io
import json
import math
import random
import re
import sys
from pathlib import Path

import pytest

from command_line import output, records, table_of
from scripts import forked
from studies import study_of
from torchrankmetrics import RankCollection, Ranks, RankTable, compare, evaluate
from torchrankmetrics.cli import main
from torchrankmetrics.inference import equivalence
from torchrankmetrics.integrations.trec import evaluate_run, rank_run
from torchrankmetrics.study import RankStudy


@pytest.mark.parametrize(
    ("options", "number"),
    [
        (
            {"metric": "mrr,mr,hits@3", "view": "base,adjusted_index,p_value", "side": "both,tail"},
            18,
        ),
        ({"metric": "gmr", "rank-type": "expected,optimistic"}, 2),
    ],
)
def test_report_gives_the_values_of_the_library(options, number, cli_folder, capsys):
    arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
    keywords = {f"{name}s".replace("-", "_"): value.split(",") for name, value in options.items()}
    expected = evaluate(RankTable.load("a.npz"), **keywords)
    got = records(capsys, "report", "a.npz", *arguments)
    assert {row["metric"]: row["value"] for row in got} == expected
    assert len(expected) == number


@pytest.mark.parametrize(
    ("options", "keywords"),
    [
        ([], {}),
        (["--cluster", "sample_id"], {"cluster": "sample_id"}),
        (["--method", "bootstrap"], {"method": "bootstrap"}),
    ],
)
def test_report_intervals_are_those_of_a_collection(cli_folder, capsys, options, keywords):
    metric = "median_rank" if "bootstrap" in options else "mrr"
    got = records(capsys, "report", "a.npz", "-m", metric, *options, "--confidence-level", "0.9")
    collection = RankCollection([metric])
    for side in ("head", "tail"):
        part = RankTable.load("a.npz").select(side=side)
        collection.update(part.ranks, side=side, group=part.group, sample_id=part.sample_id)
    (row,) = collection.confidence_intervals(0.9, **keywords).rows
    assert got == [{"metric": row.metric, "value": row.value, "low": row.low, "high": row.high}]


def test_report_by_group(cli_folder, capsys):
    got = records(capsys, "report", "a.npz", "-m", "mrr", "--by-group")
    base = records(capsys, "report", "a.npz", "-m", "mrr", "--by-group", "--view", "base")
    assert base == [{key: row[key] for key in ("group", "count", "mrr")} for row in got]
    assert [row["group"] for row in got] == [0, 1, 2]
    table = RankTable.load("a.npz")
    for i, row in enumerate(got):
        part = evaluate(table.select(group=i), metrics=["mrr", "adjusted_mrr", "z_mrr"])
        assert row == {"group": row["group"], "count": 40, **part}
    # without numbers of candidates: base values
    Path("plain.csv").write_text("rank,group\n1,0\n3,1\n2,1\n")
    first, second = records(capsys, "report", "plain.csv", "--by-group", "-m", "mrr,hits@1")
    assert first == {"group": 0, "count": 1, "mrr": 1.0, "hits_at_1": 1.0}
    assert second == {"group": 1, "count": 2, "mrr": pytest.approx(5 / 12), "hits_at_1": 0.0}
    assert [*records(capsys, "report", "plain.csv", "--by-group")[0]][2:5] == [
        "mrr",
        "mr",
        "hits_at_1",
    ]
    assert main(["report", "plain.csv", "--by-group", "-m", "amri"]) == 2
    assert "num_candidates is needed" in capsys.readouterr().err


def test_undefined_values_are_null_with_a_note(cli_folder, capsys):
    RankTable.from_ranks(Ranks([1, 2], None, 3)).save("few.npz")
    assert main(["report", "few.npz", "-m", "adjusted_hits@10", "-f", "json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["rows"] == [{"metric": "adjusted_hits_at_10", "value": None}]
    assert "note: adjusted_hits_at_10 is undefined" in err
    Path("few.csv").write_text(
        output(capsys, "report", "few.npz", "-m", "adjusted_hits@10", "-f", "csv")
    )
    assert Path("few.csv").read_text() == "metric,value\nadjusted_hits_at_10,\n"


def test_compare_gives_the_numbers_of_the_library(cli_folder, capsys):
    options = ["--confidence-level", "0.9", "--cluster", "sample_id"]
    got = records(capsys, "compare", "a.npz", "b.npz", "-m", "mrr,hits@10", *options)
    tables = RankTable.load("a.npz"), RankTable.load("b.npz")
    expected = compare(*tables, ["mrr", "hits@10"], confidence_level=0.9, cluster="sample_id").rows
    for row, one in zip(got, expected, strict=True):
        values = (
            one.metric,
            one.value_a,
            one.value_b,
            one.difference,
            one.low,
            one.high,
            one.p_value,
            one.p_adjusted,
            one.better,
            one.test,
        )
        assert tuple(row.values()) == values


def test_compare_of_folders_takes_their_files_as_training_runs(cli_folder, capsys):
    for model, first in (("x", 10), ("y", 20)):
        Path(model).mkdir()
        for run in range(3):
            table_of(first + run, 20).save(f"{model}/{run}.npz")
    (row,) = records(capsys, "compare", "x", "y")
    runs = [[RankTable.load(f"{model}/{run}.npz") for run in range(3)] for model in "xy"]
    assert row["p"] == compare(*runs, "mrr").p_value
    assert row["test"] == "t over seeds and tasks"


def test_p_values_have_no_interval_and_are_printed_by_their_logarithm(cli_folder, capsys):
    got = records(capsys, "report", "a.npz", "-m", "mrr,p_mrr,count", "--confidence-level", "0.95")
    assert got[0]["low"] < got[0]["value"] < got[0]["high"]
    assert {row[bound] for row in got[1:] for bound in ("low", "high")} == {None}
    assert got[1]["log10_p"] == pytest.approx(math.log10(got[1]["value"]))
    RankTable.from_ranks(Ranks([1] * 500, None, 100), side="tail").save("ones.npz")  # p is 100^-500
    assert re.search(
        r"(?m)^p_mrr +1e-1000$",
        output(capsys, "report", "ones.npz", "-m", "mrr", "--view", "p_value"),
    )
    (row,) = records(capsys, "report", "ones.npz", "-m", "p_mrr")
    assert (row["value"], row["log10_p"]) == (0, pytest.approx(-1000, abs=1e-6))


def test_report_of_a_folder_and_of_the_standard_input(cli_folder, capsys):
    Path("runs").mkdir()
    Path("b.npz").rename("runs/b.npz")
    Path("a.npz").rename("runs/a.npz")
    Path("runs/notes.txt").write_text("no ranks")
    got = records(capsys, "report", "runs", "-m", "mrr")
    assert got == records(capsys, "report", "runs/a.npz", "runs/b.npz", "-m", "mrr")
    assert [row["file"] for row in got] == ["runs/a.npz", "runs/b.npz"]
    command = ["-m", "torchrankmetrics", "report", "-", "-m", "mrr", "-f", "json", "-o", "-"]
    piped = forked(*command, cwd=cli_folder, stdin=Path("runs/a.npz"))
    assert json.loads(piped.stdout)["rows"] == [{"metric": "mrr", "value": got[0]["value"]}]
    assert not Path("-").exists()


def test_the_suffix_of_the_output_is_its_format(cli_folder, capsys):
    command = ["report", "a.npz", "-m", "mrr"]
    value = records(capsys, *command)[0]["value"]
    for suffix, form, part in (
        ("json", "json", f'"value": {value}'),
        ("CSV", "csv", f"metric,value\nmrr,{value}\n"),
        ("txt", "table", "120 ranks among"),
        ("md", "markdown", "| metric | value |"),
        ("tex", "latex", "% needs"),
    ):
        output(capsys, *command, "-o", f"out.{suffix}")
        assert part in Path(f"out.{suffix}").read_text() == output(capsys, *command, "-f", form)
    output(capsys, *command, "-o", "out.csv", "-f", "json")
    assert json.loads(Path("out.csv").read_text())["rows"] == [{"metric": "mrr", "value": value}]
    output(capsys, *command, "-o", "out.xlsx", "-f", "csv")
    assert not [path for path in cli_folder.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    "command", [["report", "a.npz"], ["report", "a.npz", "-o", "out.csv"], ["--help"]]
)
def test_output_to_a_closed_stdout_is_discarded(command, cli_folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)
    assert main(command) == 0
    assert sys.stdout is None
    assert "Traceback" not in capsys.readouterr().err
    assert Path("out.csv").exists() == ("-o" in command)


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])  # the second is that of LC_ALL=C
def test_stdout_in_ascii_gets_escapes_and_its_error_handler_back(errors, cli_folder, monkeypatch):
    Path("a.npz").rename("†é😀.npz")
    stream = io.TextIOWrapper(io.BytesIO(), "ascii", errors)
    monkeypatch.setattr(sys, "stdout", stream)
    for form in ("table", "csv", "json"):
        assert main(["report", "†é😀.npz", "b.npz", "-m", "mrr", "-f", form]) == 0
    text = stream.buffer.getvalue().decode("ascii")
    assert text.count("\\u2020\\xe9\\U0001f600.npz") == 3  # table, its note, and csv
    assert json.loads(text[text.index("{") :])["files"] == ["†é😀.npz", "b.npz"]


def test_three_models_are_compared_by_their_file_names(cli_folder, capsys):
    table_of(7, 30).save("c.npz")
    files = ["a.npz", "b.npz", "c.npz"]
    got = records(capsys, "compare", *files, "-m", "mrr,hits@10", "--cluster", "sample_id")
    tables = {name[0]: RankTable.load(name) for name in files}
    expected = compare(tables, ["mrr", "hits@10"], cluster="sample_id").rows
    found = [(row["metric"], row["model_a"], row["model_b"], row["p_adjusted"]) for row in got]
    assert found == [(row.metric, *row.models, row.p_adjusted) for row in expected]
    best = records(capsys, "compare", *files, "-m", "mrr", "--baseline", "b")
    assert [(row["model_a"], row["model_b"]) for row in best] == [("b", "a"), ("b", "c")]
    Path("x").mkdir()
    table_of(8, 30).save("x/a.npz")
    named = records(capsys, "compare", "a.npz", "b.npz", "x/a.npz")
    assert {row["model_b"] for row in named} == {"b.npz", "x/a.npz"}
    assert main(["compare", *files, "--baseline", "d"]) == 2
    assert (
        "baseline must be None, 'best' or one of the models 'a', 'b', 'c'; got 'd'"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("command", ["report", "compare"])
def test_pages_have_no_absolute_paths(command, cli_folder, capsys):
    files = [str(Path(name).absolute()) for name in ("a.npz", "b.npz")]
    page = output(capsys, command, *files, "-m", "mrr", "-f", "html")
    assert page.startswith("<!DOCTYPE html>")
    assert "a.npz" in page
    assert str(Path.cwd()) not in page


@pytest.mark.filterwarnings("ignore::torchrankmetrics.RankMetricWarning")
def test_margin_gives_the_equivalence_of_the_library(cli_folder, capsys):
    options = ["-m", "mrr,mr", "--margin", "0.2", "--cluster", "sample_id"]
    got = records(capsys, "compare", "a.npz", "b.npz", *options)
    for row in got:
        a, b = RankTable.load("a.npz"), RankTable.load("b.npz")
        found = equivalence(a, b, row["metric"], margin=0.2, cluster="sample_id")
        names = ("difference", "low", "high", "p_equivalent")
        assert [row[name] for name in names] == [getattr(found, name) for name in names]
        assert (row["equivalent"] == "yes") == found.equivalent
    assert [row["metric"] for row in got] == ["mrr", "mr"]


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Judgments of BEIR, a TREC run and a JSON run of 30 queries; and options that name them."""
    rng = random.Random(0)
    documents = [f"d{i}" for i in range(300)]
    qrels = {f"q{i}": dict.fromkeys(rng.sample(documents, 3), 1) for i in range(30)}
    runs = []
    for skill in (1.0, 3.0, 3.2):
        runs.append({})
        for query, of in qrels.items():
            scores = {name: rng.gauss(skill * (name in of), 1.0) for name in documents}
            runs[-1][query] = dict(sorted(scores.items(), key=lambda item: -item[1])[:50])
    lines = [f"{query}\t{name}\t1" for query, of in qrels.items() for name in of]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]))
    trec = "\n".join(
        f"{query} Q0 {name} 1 {x!r} bm25" for query, of in runs[0].items() for name, x in of.items()
    )
    (tmp_path / "bm25.gz").write_bytes(gzip.compress(trec.encode()))
    (tmp_path / "dense.json").write_text(json.dumps(runs[1]))
    (tmp_path / "rerank.json").write_text(json.dumps(runs[2]))
    return ["--qrels", "test.tsv", "--run", "bm25.gz", "--run", "dense.json"]


def test_report_of_runs_has_the_values_of_the_library(files, capsys):
    got = records(capsys, "report", *files)
    for file in ("bm25.gz", "dense.json"):
        expected = evaluate_run("test.tsv", file)
        assert {row["metric"]: row["value"] for row in got if row["file"] == file} == expected
    options = ["--num-candidates", "300", "-m", "ap@50,adjusted_rr@50", "--confidence-level", "0.9"]
    for row in records(capsys, "report", *files[:4], *options):
        (value,) = evaluate_run("test.tsv", "bm25.gz", row["metric"], num_candidates=300).values()
        assert row["value"] == value
        assert row["low"] < value < row["high"]


def test_qrels_and_runs_by_position_are_those_of_the_options(files, capsys):
    by_option = output(capsys, "report", *files, "-m", "ndcg@10")
    assert (
        output(capsys, "report", "test.tsv", "bm25.gz", "dense.json", "-m", "ndcg@10") == by_option
    )
    by_option = output(capsys, "compare", *files)
    assert output(capsys, "compare", "test.tsv", "bm25.gz", "dense.json") == by_option


def test_values_of_queries_are_those_of_the_library(files, capsys):
    got = records(capsys, "report", "test.tsv", "bm25.gz", "-m", "ndcg@10,recall@5", "-q")
    expected = evaluate_run("test.tsv", "bm25.gz", ["ndcg@10", "recall@5"], per_query=True)
    assert len(got) == 2 * len(expected)
    assert all(expected[row["query"]][row["metric"]] == row["value"] for row in got)
    several = records(capsys, "report", *files, "-m", "ndcg@10", "-q")
    assert {row["file"] for row in several} == {"bm25.gz", "dense.json"}


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("--metric", ["mrr", "hits@10"]),
        ("--view", ["base", "adjusted_index"]),
        ("--side", ["head", "tail"]),
        ("--rank-type", ["optimistic", "pessimistic"]),
    ],
)
def test_repeated_options_are_collected(cli_folder, capsys, option, values):
    repeated = [word for value in values for word in (option, value)]
    joined = output(capsys, "report", "a.npz", option, ",".join(values))
    assert output(capsys, "report", "a.npz", *repeated) == joined
    assert len(joined) > len(output(capsys, "report", "a.npz", option, values[1]))


def test_every_repeated_limit_can_fail(cli_folder, capsys):
    limits = ["--fail-under", "mrr=0.99", "--fail-under", "hits@10=0"]
    assert main(["report", "a.npz", "-m", "mrr", *limits]) == 1
    assert "mrr is" in capsys.readouterr().err


def test_limits_are_of_metrics_at_the_relevance_threshold(tmp_path, monkeypatch, capsys):
    """Two labels, 1 and 3, of which the lists have 1 at the first and 3 at the second place."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qrels.json").write_text(json.dumps({f"q{i}": {"a": 1, "b": 3} for i in range(9)}))
    (tmp_path / "run.json").write_text(json.dumps({f"q{i}": ["a", "b"] for i in range(9)}))
    arguments = ["report", "qrels.json", "run.json", "-m", "rr", "--relevance-threshold", "2"]
    assert main([*arguments, "--fail-under", "rr=0.5"]) == 0
    assert main([*arguments, "--fail-under", "rr=0.6"]) == 1
    assert "rr_rel_2 is 0.5, below 0.6" in capsys.readouterr().err


def test_digits_are_those_of_printed_numbers(cli_folder, capsys):
    assert re.search(
        r"mrr +0\.\d\d$", output(capsys, "report", "a.npz", "-m", "mrr", "--digits", "2"), re.M
    )
    (row,) = records(capsys, "report", "a.npz", "-m", "mrr", "--digits", "2")
    assert len(str(row["value"])) > 10


def test_mrr_of_runs_is_rr_with_a_note(files, capsys):
    arguments = ["report", *files[:4], "-m", "mrr,ndcg@10", "--fail-under", "mrr=0.999"]
    assert main([*arguments, "--format", "json"]) == 1
    printed = capsys.readouterr()
    assert [row["metric"] for row in json.loads(printed.out)["rows"]] == ["rr", "ndcg_at_10"]
    assert "note: 'mrr' of a run is 'rr'" in printed.err
    assert "rr is " in printed.err


def test_identical_ids_are_left_out_on_request(files, capsys, tmp_path):
    run = json.loads((tmp_path / "dense.json").read_text())
    own = {query: scores | {query: 99.0} for query, scores in run.items()}
    (tmp_path / "own.json").write_text(json.dumps(own))
    with_own = ["--qrels", "test.tsv", "--run", "own.json"]
    kept = records(capsys, "report", *with_own, "-m", "rr")
    left_out = records(capsys, "report", *with_own, "-m", "rr", "--ignore-identical-ids")
    expected = evaluate_run("test.tsv", run, "rr")["rr"]
    assert left_out[0]["value"] == expected > kept[0]["value"]
    assert main(["report", "a.npz", "--ignore-identical-ids"]) == 2


def test_compare_of_runs_has_the_numbers_of_the_library(files, capsys):
    (row,) = records(capsys, "compare", *files)
    tables = {name: rank_run("test.tsv", name) for name in ("bm25.gz", "dense.json", "rerank.json")}
    expected = compare(*list(tables.values())[:2], "ndcg@10")
    assert (row["difference"], row["low"], row["p"]) == (
        expected.difference,
        expected.low,
        expected.p_value,
    )
    rows = records(
        capsys,
        "compare",
        *files,
        "--run",
        "rerank.json",
        "-m",
        "recall@5,ap@50",
        "--baseline",
        "best",
    )
    expected = compare(tables, ["recall@5", "ap@50"], baseline="best")
    assert [(row["model_a"], row["model_b"]) for row in rows] == [
        row.models for row in expected.rows
    ]
    assert [row["p_adjusted"] for row in rows] == [row.p_adjusted for row in expected.rows]
    assert main(["compare", *files, "--fail-if", "worse"]) == 1


@pytest.fixture(scope="module")
def pattern(tmp_path_factory):
    pattern = tmp_path_factory.mktemp("runs") / "{dataset}" / "{model}.{seed}.npz"
    study_of("ab", ("small", "middle"), seeds=2).save(pattern)
    return str(pattern)


def test_a_table_for_people_is_that_of_the_study(pattern, capsys):
    options = {"confidence_level": 0.9, "cluster": "sample_id"}
    table = RankStudy.open(pattern).table(["mrr", "hits@3"], "adjusted_index", **options)
    arguments = [
        "study",
        pattern,
        "-m",
        "mrr,hits@3",
        "--view",
        "adjusted_index",
        "--confidence-level",
        "0.9",
    ]
    arguments += ["--cluster", "sample_id"]
    assert output(capsys, *arguments) == f"{table}\n"
    assert (
        output(capsys, *arguments, "--values-only")
        == table.with_layout(intervals=False).to_text() + "\n"
    )
    assert output(capsys, *arguments, "--format", "latex") == table.to_latex() + "\n"
    assert output(capsys, *arguments, "--format", "markdown") == table.to_markdown() + "\n"


def test_a_table_for_programs_has_a_row_per_cell(pattern, tmp_path, capsys):
    table = RankStudy.open(pattern).table(["mrr", "hits@10"])
    rows = json.loads(output(capsys, "study", pattern, "-f", "json"))["rows"]
    assert rows == json.loads(table.to_json())
    assert len(rows) == 8
    assert main(["study", pattern, "-o", str(tmp_path / "out.csv")]) == 0
    assert (tmp_path / "out.csv").read_text() == table.to_csv()
    averages = output(capsys, "study", pattern, "-m", "mrr,amri", "--across")
    assert averages == f"{RankStudy.open(pattern).summary(['mrr', 'amri'])}\n"


def test_html_is_the_page(pattern, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib", reason="the page has figures")
    assert main(["study", pattern, "-m", "mrr", "--output", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text() == RankStudy.open(pattern).report(metrics="mrr")

    def report(self, path, names, **options):
        return f"{path} {names} {options['cluster']}"

    monkeypatch.setattr(RankStudy, "report", report)
    assert (
        output(capsys, "study", pattern, "--format", "html", "--cluster", "group")
        == "None ['mrr', 'hits@10'] group"
    )


def test_a_page_that_cannot_be_drawn_is_one_line_before_the_computation(
    pattern, monkeypatch, capsys
):
    def failing():
        raise OSError("matplotlib needs a writable directory")

    monkeypatch.setattr("torchrankmetrics.study.rank_study.pyplot", failing)
    monkeypatch.setattr(RankStudy, "dataset", None)
    assert main(["study", pattern, "-m", "mrr", "--format", "html"]) == 2
    assert capsys.readouterr() == ("", "error: matplotlib needs a writable directory\n")


def test_queries_without_a_relevant_document_count_as_zero_or_are_skipped(files, capsys):
    with open("test.tsv", "a") as file:
        file.writelines(f"\ne{i}\td0\t0" for i in range(10))
    arguments = [*files[:4], "-m", "rr,ndcg@10"]
    skipped = {
        row["metric"]: row["value"]
        for row in records(capsys, "report", *arguments, "--empty-queries", "skip")
    }
    for options in ([], ["--empty-queries", "zero"]):
        for row in records(capsys, "report", *arguments, *options):
            assert row["value"] == pytest.approx(0.75 * skipped[row["metric"]], rel=1e-12)
    assert main(["report", *arguments, "--empty-queries", "error"]) != 0
    assert "10 without any" in capsys.readouterr().err
    rank_run("test.tsv", "bm25.gz").save("ranks.npz")
    (row,) = records(capsys, "report", "ranks.npz", "-m", "rr")
    assert row["value"] == skipped["rr"]
    (row,) = records(capsys, "report", "ranks.npz", "-m", "rr", "--empty-queries", "zero")
    assert row["value"] == pytest.approx(0.75 * skipped["rr"], rel=1e-12)
    (zero,), (skip,) = (
        records(capsys, "compare", *files, "-m", "rr", *options)
        for options in ([], ["--empty-queries", "skip"])
    )
    assert zero["difference"] == pytest.approx(0.75 * skip["difference"], rel=1e-12)
