"""Rank tables as Parquet: what is written is read; an engine's file is read or refused by name."""

import os
import sys
from contextlib import suppress
from datetime import date

import numpy as np
import pytest
import torch
from test_table_io import flipped

from command_line import output, table_of
from torchrankmetrics import Ranks, RankTable
from torchrankmetrics.cli import main
from torchrankmetrics.study import RankStudy

pa = pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
pq = pytest.importorskip("pyarrow.parquet", reason="needs the extra 'parquet'")

FULL = {
    "optimistic": [1, 3, 5],
    "pessimistic": [1, 4, 9],
    "num_candidates": [14, 14, 2**40],
    "side": [1, 2, 3],
    "group": [7, -3, 2**62],
    "sample_id": [4, -(2**63), 9],
    "count": [1, 5, 1],
    "query": [3, 3, -17],
    "weight": [0.1, 1.0, 2.5],
    "gain": [0.0, 3.0, 1.0],
    "nan": [True, False, False],
    "sampled": [False, True, False],
    "partial": [True, False, False],
    "filtered": [True, True, False],
    "raw": [False, False, True],
}
RANKS = {"optimistic": [1, 2], "num_candidates": [9, 9]}


def put(path, **columns):
    """A file as another program writes it: without this library."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def test_every_column_makes_the_round_trip_and_default_columns_are_omitted(tmp_path):
    table = RankTable.from_numpy(FULL)
    table.save(tmp_path / "a.parquet")  # by its name
    written = pq.read_table(tmp_path / "a.parquet")
    assert {name: written[name].to_pylist() for name in written.column_names} == FULL
    assert written.schema.metadata == {b"rank_table_version": b"4"}
    assert torch.equal(RankTable.load(tmp_path / "a.parquet").rows, table.rows)
    RankTable.from_numpy({"optimistic": [1], "num_candidates": 3}).save(tmp_path / "b.parquet")
    assert pq.read_schema(tmp_path / "b.parquet").names == [
        "optimistic",
        "pessimistic",
        "num_candidates",
    ]


def test_several_files_are_one_table_whatever_columns_each_has(tmp_path):
    """Not the columns of the first, as engines read a folder."""
    parts = [
        table_of(0, 20),
        RankTable.from_ranks(Ranks([2, 1], None, 9)),
        RankTable.from_numpy(FULL),
    ]
    names = ["part-2.parquet", "part-10.parquet", "part-11.parquet"]
    for name, part in zip(names, parts, strict=True):
        part.to_parquet(tmp_path / name)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".part-2.parquet.crc").touch()
    expected = RankTable.concatenate(parts).rows
    assert torch.equal(RankTable.from_parquet(tmp_path).rows, expected)
    assert torch.equal(RankTable.from_parquet([tmp_path / name for name in names]).rows, expected)
    assert torch.equal(RankTable.load(tmp_path).rows, expected)


def test_partitions_are_rejected_and_read_by_pandas(tmp_path):
    """A folder of other folders is not one table: it may contain several models."""
    pandas = pytest.importorskip("pandas")
    for name in ("side=head/group=3", "side=tail/group=-4"):
        put(tmp_path / name / "a.parquet", **RANKS)
    for load in (RankTable.load, RankTable.from_parquet):
        with pytest.raises(
            ValueError, match=r"contain the files of one table, got .*=3/a\.parquet; .*from_pandas"
        ):
            load(tmp_path)
    table = RankTable.from_pandas(
        pandas.read_parquet(tmp_path).assign(pessimistic=lambda frame: frame.optimistic)
    )
    assert (table.select(side="head").group.tolist(), table.select(side="tail").group.tolist()) == (
        [3, 3],
        [-4, -4],
    )


@pytest.mark.parametrize(
    ("side", "group", "more"),
    [
        (pa.array(["head", "none"]), pa.array([1, 2], pa.uint64()), {}),
        (pa.array(["head", "none"]).dictionary_encode(), pa.array([1, 2], pa.int16()), {}),
        (pa.array([1, 0], pa.int8()), pa.array([1, 2]).dictionary_encode(), {}),
        (pa.array(["Head", None]), ["1", "2"], {"sample_id": pa.array([None, None], pa.int64())}),
        (pa.array([1, 0], pa.uint8()), [1, 2], {"weight": pa.array([1, 1], pa.float32())}),
        ([1, 0], [1, 2], {"__index_level_0__": [4, 5]}),
        ([1, 0], [1, 2], {"rank": [1, 2]}),
    ],
)
def test_integers_and_floats_of_any_width_words_and_nulls_are_read(side, group, more, tmp_path):
    columns = {
        "optimistic": pa.array([1, 2], pa.int32()),
        "num_candidates": [9, 9],
        "side": side,
        "group": group,
    }
    if "rank" in more:
        del columns["optimistic"]
    path = put(tmp_path / "a.parquet", **columns, **more)
    expected = RankTable.from_numpy({**RANKS, "side": [1, 0], "group": [1, 2]})
    assert torch.equal(RankTable.from_parquet(path).rows, expected.rows)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"group": ["a", "b"]},
            "group must contain numbers: number names from 0 on, .*; got 'a' in row 0",
        ),
        (
            {"num_candidates": pa.array([9, None])},
            "num_candidates must have a value in every row, got none in row 1",
        ),
        ({"group": [date(2026, 1, 1)] * 2}, r"group must contain numbers: .*; got .*2026-01-01"),
        ({"nan": [0, 1]}, "nan must contain booleans, got int64"),
        ({"side": ["head", "left"]}, "side must contain numbers, or head and tail"),
        ({"model": [1, 1]}, "arrays must be among .*; got 'model'"),
        ({"pessimistic": [1, 1]}, "optimistic ranks must not be above pessimistic"),
    ],
)
def test_columns_that_cannot_be_read_are_named(columns, message, tmp_path):
    path = put(tmp_path / "bad.parquet", **{**RANKS, **columns})
    with pytest.raises(
        ValueError, match=f"bad.parquet is not a whole Parquet file of ranks: .*{message}"
    ):
        RankTable.from_parquet(path)


def test_damaged_files_and_empty_folders_raise(tmp_path):
    path = tmp_path / "a.parquet"
    RankTable.from_numpy(FULL).to_parquet(path)
    content = path.read_bytes()
    for damaged in (b"", content[:4] + content[40:], b"PAR1" + b"x" * 50, b"PAR1"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"a\.parquet is not a whole Parquet file of ranks"):
            RankTable.from_parquet(path)
    (tmp_path / "void").mkdir()
    for nothing in (tmp_path / "void", []):
        with pytest.raises(ValueError, match=r"there is no \.parquet file to read in"):
            RankTable.from_parquet(nothing)


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (b"99", "its rank_table_version is 99; this library reads 1, 2"),
        (b"1", "its rank_table_version is 1, but files of its columns have at least 4"),
    ],
    ids=["later", "too early"],
)
def test_versions_that_do_not_fit_the_columns_raise(version, message, tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(FULL).replace_schema_metadata({b"rank_table_version": version}), path)
    with pytest.raises(ValueError, match=message):
        RankTable.load(path)


@pytest.mark.parametrize("missing", ["missing.parquet", ""], ids=["missing", "empty path"])
@pytest.mark.parametrize(
    "load", [RankTable.load, RankTable.from_parquet], ids=["load", "from_parquet"]
)
def test_missing_files_raise(load, missing, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an empty path is not the working directory
    with pytest.raises(FileNotFoundError):
        load(missing)


def test_a_small_file_that_would_take_much_memory_is_rejected_until_the_caller_allows_it(tmp_path):
    n = 1_000_000
    ones = pa.array(np.ones(n, dtype=np.int64))
    path = put(tmp_path / "large.parquet", optimistic=ones, num_candidates=ones)
    assert os.path.getsize(path) < 10_000
    for source in (path, [path, path], tmp_path):
        with pytest.raises(ValueError, match=r"is not loaded: it would take .* max_bytes=1000000"):
            RankTable.from_parquet(source, max_bytes=1_000_000)
    with pytest.raises(ValueError, match=r"large\.parquet is not loaded"):
        RankTable.load(path, max_bytes=n * 72)  # and a group of its rows
    assert len(RankTable.load(path, max_bytes=n * 89)) == n
    # a footer of many bytes is not read
    path.write_bytes(b"PAR1" + bytes(1 << 21) + (1 << 21).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(
        ValueError, match=r"large\.parquet is not loaded: it would take 268436480 bytes"
    ):
        RankTable.load(path, max_bytes=1 << 24)


def test_changed_bits_in_pages_with_checksums_of_another_program_are_an_error(tmp_path):
    path = tmp_path / "a.parquet"
    arrays = table_of(0, 20).to_numpy()
    pq.write_table(pa.table(arrays), path, write_page_checksum=True)
    rows, content = RankTable.load(path).rows, path.read_bytes()
    for damaged in flipped(content, seed=1):
        path.write_bytes(damaged)
        with suppress(ValueError):
            assert torch.equal(RankTable.load(path).rows, rows)


def test_a_wrong_row_behind_the_first_batch_is_counted_from_there(tmp_path):
    ranks = np.ones(100_000, dtype=np.int64)
    ranks[70_000] = -1
    path = put(
        tmp_path / "a.parquet",
        optimistic=ranks,
        num_candidates=np.full(100_000, 5),
        weight=-1.0 * (ranks < 0),
    )
    with pytest.raises(ValueError, match=r"\(counted from row 65536\)"):
        RankTable.from_parquet(path)


def test_without_pyarrow_an_error_names_the_package_to_install(tmp_path, monkeypatch, capsys):
    table_of(0, 20).to_parquet(tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for act in (
        RankTable.load,
        RankTable.from_parquet,
        table_of(0, 20).to_parquet,
        table_of(0, 20).save,
    ):
        with pytest.raises(ImportError, match=r"pip install 'torchrankmetrics\[parquet\]'"):
            act(tmp_path / "a.parquet")
    assert main(["report", str(tmp_path / "a.parquet")]) == 2
    assert (
        "error: Parquet needs pyarrow: pip install 'torchrankmetrics[parquet]'"
        in capsys.readouterr().err
    )


def test_a_study_of_parquet_is_that_of_npz_and_its_page_is_verified(tmp_path, monkeypatch, capsys):
    """One of the models is a folder of an engine."""
    pytest.importorskip("matplotlib", reason="a page needs the extra 'plot'")
    monkeypatch.chdir(tmp_path)
    folders = {name: tmp_path / name / "toy" for name in ("npz", "parquet")}
    for path in (*folders.values(), folders["parquet"] / "b.parquet"):
        path.mkdir(parents=True)
    for i, model in enumerate("ab"):
        table_of(10 * i, 20 + 5 * i).save(folders["npz"] / f"{model}.npz")
    table_of(0, 20).save("parquet/toy/a.parquet")
    for j, side in enumerate(("head", "tail")):
        table_of(10, 25).select(side=side).to_parquet(
            folders["parquet"] / "b.parquet" / f"part-{j}.parquet"
        )
    models = "{0}/toy/a.{0} {0}/toy/b.{0} -m mrr"
    for command in (
        f"report {models}",
        f"compare {models}",
        "study {0}/{{dataset}}/{{model}}.{0} -m mrr",
    ):
        npz, parquet = (
            output(capsys, *command.format(kind).split(), "-f", "csv") for kind in folders
        )
        assert parquet.replace("parquet", "npz") == npz
    study = RankStudy.open("parquet/{dataset}/{model}.parquet")
    study.report("page.html", "mrr")
    assert main(["verify", "page.html", "parquet"]) == 0
    study.save("again/{dataset}.{model}.parquet")
    assert pq.read_table("again/toy.b.parquet").num_rows == 120
    table_of(7, 20).save("parquet/toy/a.parquet")
    assert main(["verify", "page.html", "parquet"]) == 1


@pytest.mark.parametrize("file", ["a.parquet/{}.parquet", "a/part.{}.parquet", "a/{}.parquet"])
def test_the_folder_of_one_table_is_one_run(file, tmp_path, capsys):
    for i in range(2):
        put(tmp_path / file.format(i), **RANKS)
    if file == "a/{}.parquet":
        (tmp_path / "a" / "_SUCCESS").touch()
    printed = output(
        capsys, "report", tmp_path / file.partition("/")[0], "-m", "count", "-f", "csv"
    )
    assert [row.split(",")[-1] for row in printed.splitlines()] == ["value", "4.0"]
