"""Tables that travel: what is saved is what is loaded, and nothing but a whole table is loaded."""

import io
import os
import pickle
import re
import socket
import stat
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from command_line import table_of
from fuzzing import cases
from torchrankmetrics import Ranks, RankTable, evaluate
from torchrankmetrics.ranking import flags
from torchrankmetrics.table.columns import ABSENT, SIDE_BITS, Columns

EMPTY, TWO = RankTable.concatenate([]), RankTable.from_ranks(Ranks([1, 2], None, 5))
without_pyarrow = pytest.mark.skipif(
    find_spec("pyarrow") is None, reason="needs the extra 'parquet'"
)
FILES = ["a.npz", pytest.param("a.parquet", marks=without_pyarrow)]


@st.composite
def tables(draw):
    n = draw(st.integers(0, 6))

    def column(elements):
        return draw(st.lists(elements, min_size=n, max_size=n))

    top = draw(st.sampled_from([3, 200, 70_000, 2**62 - 1]))
    triples = [sorted(column(st.integers(1, top))[:3] + [1, 1, 1])[-3:] for _ in range(n)]
    ranks = Ranks(*torch.tensor(triples, dtype=torch.int64).reshape(-1, 3).T)
    ids = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 300)
    options = {
        "side": draw(st.sampled_from([None, "head", "tail"])),
        "group": draw(st.none() | st.just(column(ids))),
        "sample_id": draw(st.none() | st.just(column(ids))),
    }
    if n and draw(st.booleans()):
        options["weight"] = column(st.floats(0.01, 1e300))
    if n and draw(st.booleans()):
        options["query"] = column(st.integers(0, 3))
    table = RankTable.from_ranks(ranks, **options)
    if draw(st.booleans()):
        gains = column(st.floats(0, 1e300))
        table = RankTable.from_numpy(table.to_numpy() | {"gain": np.array(gains, dtype=np.float64)})
    marks = column(st.sampled_from([0, flags.NAN, flags.SAMPLED, flags.NAN | flags.SAMPLED]))
    Columns(table.rows).side_and_flags |= torch.tensor(marks, dtype=torch.int64) << SIDE_BITS
    return table


@pytest.mark.parametrize("name", FILES)
@cases(15, 400)
@given(table=tables())
def test_arrays_and_files_give_the_same_rows(name, table, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / name
    table.save(path)
    for back in (RankTable.from_numpy(table.to_numpy()), RankTable.load(path)):
        assert torch.equal(back.rows, table.rows)


def test_columns_that_say_nothing_are_left_out_and_arrays_are_copies():
    assert set(TWO.to_numpy()) == {"optimistic", "pessimistic", "num_candidates"}
    sampled = Ranks.from_negatives(torch.tensor([0.0, float("nan")]), torch.zeros(2, 3))
    full = RankTable.from_ranks(
        sampled, side="head", group=1, weight=2.0, sample_id=torch.tensor([0, 1])
    )
    arrays = RankTable.concatenate([full, TWO, TWO]).compact().to_numpy()
    assert (
        " ".join(arrays)
        == "optimistic pessimistic num_candidates side group sample_id count weight nan sampled"
    )
    rows = sorted(
        zip(*(arrays[name].tolist() for name in ("group", "count", "sampled", "nan")), strict=True)
    )
    assert rows == [(ABSENT, 2, False, False)] * 2 + [(1, 1, True, False), (1, 1, True, True)]
    before = full.rows.clone()
    for array in full.to_numpy().values():
        array[:] = 1
    assert torch.equal(full.rows, before)


def test_gains_are_part_of_a_task_of_a_query_and_ignored_by_metrics_of_ranking_tasks():
    arrays = {"optimistic": [2, 2, 5], "num_candidates": 9, "query": [1, 1, 2], "filtered": True}
    table, without = (
        RankTable.from_numpy({**arrays, **gain}) for gain in ({"gain": [2.0, 1.0, 0.0]}, {})
    )
    assert table.compact().to_numpy()["gain"].tolist() == [1.0, 2.0, 0.0]
    assert len(without.compact()) == 2
    assert evaluate(table, metrics=["mrr", "z_gmr"]) == evaluate(without, metrics=["mrr", "z_gmr"])


def test_a_table_of_the_size_of_fb15k237_takes_less_than_400_kb(tmp_path):
    """20,466 test triples on both sides with relation and triple id, ranks of a middling model."""
    random = np.random.default_rng(0)
    parts = []
    for side in (1, 2):
        N = 14_541 - np.minimum(random.zipf(1.3, 20_466), 7000)
        rank = np.floor(N ** random.random(20_466)).astype(int).clip(1)
        group = (237 * random.random(20_466) ** 2).astype(int)
        columns = {"optimistic": rank, "num_candidates": N, "side": side, "group": group}
        parts.append(RankTable.from_numpy({**columns, "sample_id": np.arange(20_466)}))
    table = RankTable.concatenate(parts)
    table.save(tmp_path / "a.npz")
    assert (tmp_path / "a.npz").stat().st_size < 400_000
    assert torch.equal(RankTable.load(tmp_path / "a.npz").rows, table.rows)


def test_the_same_table_gives_the_same_bytes(tmp_path):
    TWO.save(tmp_path / "a.npz")
    TWO.save(tmp_path / "b")
    # no suffix is added, nothing is left lying about
    assert sorted(os.listdir(tmp_path)) == ["a.npz", "b"]
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b").read_bytes()


def tail(ranks, ids, side="tail", group=None):
    return RankTable.from_ranks(Ranks(ranks, None, 20), side=side, sample_id=ids, group=group)


def test_the_rows_of_a_side_are_selected_and_groups_are_given_to_a_copy():
    both = RankTable.concatenate([tail([1, 2], [0, 1]), tail([5], [0], side="head")])
    assert both.select(side="tail").num_tasks == 2
    assert torch.equal(both.select().rows, both.rows)
    with pytest.raises(ValueError, match="side must be"):
        both.select(side="both")
    one = tail([1, 2, 9], [0, 1, 2], group=[4, 4, 5])
    before = one.rows.clone()
    assert one.with_group(7).group.tolist() == [7, 7, 7]
    assert one.with_group([3, 2, 1]).group.tolist() == [3, 2, 1]
    assert one.with_group(None).group.tolist() == [ABSENT] * 3
    assert torch.equal(one.rows, before)
    for left in ("ranks", "sample_id", "weight", "count"):
        assert str(getattr(one.with_group(7), left)) == str(getattr(one, left))
    with pytest.raises(ValueError, match=r"group must be \(tasks,\) = \(3,\)"):
        one.with_group([1, 2])
    with pytest.raises(TypeError, match="group must contain integers"):
        one.with_group([1.0, 2.0, 3.0])


def test_equal_ids_of_two_data_sets_are_no_repeats_once_they_are_moved_apart():
    a, b = tail([1, 1, 4], [0, 1, 7], group=0), tail([4, 4], [-3, 1], group=1)
    joined = RankTable.concatenate([a, b], offset_ids=True)
    assert joined.sample_id.tolist() == [0, 1, 7, 8, 12]
    assert joined.compact().num_tasks == 5
    assert evaluate(joined, metrics="macro_mrr") == {"macro_mrr": (0.75 + 0.25) / 2}
    assert b.sample_id.tolist() == [-3, 1]  # what was given stays
    plain = RankTable.from_ranks(Ranks([3], None, 20))
    assert RankTable.concatenate([plain, a], offset_ids=True).sample_id.tolist() == [
        ABSENT,
        0,
        1,
        7,
    ]
    assert len(RankTable.concatenate([], offset_ids=True)) == 0
    sides = RankTable.concatenate([tail([1, 2], [5, 6]), tail([3, 4], [5, 6], side="head")])
    # both sides of a triple keep their common id
    joined = RankTable.concatenate([sides, sides], offset_ids=True)
    assert joined.sample_id.tolist() == [0, 1, 0, 1, 2, 3, 2, 3]
    assert joined.compact().num_tasks == 8
    wide = tail([1, 2], [-(1 << 62), 1 << 62])
    with pytest.raises(ValueError, match="sample ids of all tables together must fit in int64"):
        RankTable.concatenate([wide, wide], offset_ids=True)


GOOD = {"optimistic": [1, 2], "num_candidates": [5, 5]}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"optimistic": [1.0, 2.0]},
            TypeError,
            "optimistic must contain integers, got torch.float64",
        ),
        ({"side": ["head", "tail"]}, TypeError, "side must contain numbers"),
        ({"weight": ["a", "b"]}, TypeError, "weight must contain real numbers"),
        ({"nan": [0, 1]}, TypeError, "nan must contain booleans, got int64"),
        ({"optimistic": 1}, ValueError, r"optimistic must be \(tasks,\), got shape \(\)"),
        (
            {"pessimistic": [1]},
            ValueError,
            r"pessimistic must be \(tasks,\) = \(2,\) as optimistic, got shape \(1,\)",
        ),
        (
            {"optimistic": [0, 1]},
            ValueError,
            "ranks must start at 1, but task 0 has rank 0",
        ),
        (
            {"optimistic": [2, 2], "pessimistic": [1, 2]},
            ValueError,
            "must not be above pessimistic",
        ),
        (
            {"num_candidates": np.array([2**63, 5], dtype=np.uint64)},
            ValueError,
            "must be below 2\\^63",
        ),
        (
            {"side": [0, 4]},
            ValueError,
            r"be 0 \(none\), 1 \(head\), 2 \(tail\) or 3 \(relation\); got 4 in row 1",
        ),
        (
            {"weight": [1, -1]},
            ValueError,
            "weight must be finite and not negative; got -1.0 in row 1",
        ),
        ({"weight": [np.nan, 1]}, ValueError, "weight must be finite"),
        ({"count": [1, 0]}, ValueError, "count must be at least 1; got 0 in row 1"),
        (
            {"count": [1, 2], "sample_id": [0, 1]},
            ValueError,
            "count must be 1 in rows with a sample_id",
        ),
        ({"relation": [1, 2]}, ValueError, "arrays must be among optimistic, .*; got 'relation'"),
    ],
)
def test_bad_arrays_are_named(change, error, message, tmp_path):
    with pytest.raises(error, match=message):
        RankTable.from_numpy(GOOD | change)
    np.savez(tmp_path / "a.npz", rank_table_version=4, **(GOOD | change))
    with pytest.raises(ValueError, match=f"a.npz is not a whole RankTable file: .*{message}"):
        RankTable.load(tmp_path / "a.npz")


def test_faults_of_an_accelerator_are_not_saved_and_missing_arrays_are_named(tmp_path):
    with pytest.raises(ValueError, match="group must not be ragged"):
        RankTable.from_numpy(GOOD | {"group": [[0], [1, 2]]})
    with pytest.raises(ValueError, match="arrays must contain optimistic, got none"):
        RankTable.from_numpy({})
    table = RankTable(TWO.rows.clone())
    Columns(table.rows).side_and_flags[1] |= flags.TARGET_RANGE << SIDE_BITS
    with pytest.raises(IndexError, match="1 ranking tasks"):
        table.save(tmp_path / "a.npz")
    assert not os.listdir(tmp_path)


class Payload:
    """Executed if anything unpickles it."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def saved(save, *arrays, **named):
    with io.BytesIO() as file:
        save(file, *arrays, **named)
        return file.getvalue()


def test_a_foreign_file_is_rejected_and_nothing_is_executed(tmp_path):
    trap, path = tmp_path / "trap", tmp_path / "a.npz"
    pickled = np.empty(2, dtype=object)
    pickled[:] = Payload(trap)
    whole = {"rank_table_version": 1, **GOOD}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("optimistic.npy", pickle.dumps(Payload(trap)))
        archive.writestr("readme.txt", "hello")
    files = {
        "it is empty": b"",
        r"not an .npz, it starts with b'.x93NUMPY": saved(np.save, np.arange(3)),
        "version.*it has a; write it with RankTable.from_numpy": saved(np.savez, a=np.arange(3)),
        r"version is 7; this library reads 1, 2, 3, 4, 5, 6": saved(
            np.savez, **GOOD, rank_table_version=7
        ),
        "version is 1, but files of its columns have at least 4": saved(
            np.savez, **whole, gain=[1.0, 2.0]
        ),
        "version is 1, but files of its columns have at least 5": saved(
            np.savez, rank_table_version=1, optimistic=[1]
        ),
        "got 'extra'": saved(np.savez, **whole, extra=[1, 2]),
        "'group' is not a whole array of numbers": saved(np.savez, **whole, group=pickled),
        r"not an \.npz, it starts with b'.x80": pickle.dumps(Payload(trap)),
        "it has optimistic, readme.txt": buffer.getvalue(),
    }
    for message, content in files.items():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"a.npz is not a whole RankTable file: .*{message}"):
            RankTable.load(path)
    assert not trap.exists()
    with pytest.raises(FileNotFoundError):
        RankTable.load(tmp_path / "none.npz")
    with pytest.raises(IsADirectoryError):
        RankTable.load(tmp_path)


def flipped(content, seed, number=150):
    """Copies with one bit changed, or a few."""
    random = np.random.default_rng(seed)
    for case in range(number):
        damaged = bytearray(content)
        for place in random.integers(len(content), size=1 if case % 4 else 3):
            damaged[place] ^= 1 << random.integers(8)
        yield bytes(damaged)


@pytest.mark.parametrize("name", FILES)
def test_cuts_and_changed_bits_are_an_error_or_change_nothing(name, tmp_path):
    table, path = table_of(0, 20), tmp_path / name
    table.save(path)
    messages, content = [], path.read_bytes()
    cuts = [content[:end] for end in range(0, len(content), 200)]
    for damaged in (*cuts, *flipped(content, seed=0)):
        path.write_bytes(damaged)
        try:
            found = RankTable.load(path).rows
        except ValueError as error:  # any other error fails the test
            messages.append(str(error))
        else:
            assert torch.equal(found, table.rows)
    assert len(messages) > 110 + len(cuts)
    assert all(
        re.match(f"{re.escape(str(path))} is (not a whole|not loaded)", message)
        for message in messages
    )
    assert max(map(len, messages)) < 500 + len(str(path))


def test_an_entry_that_swallows_the_next_is_rejected_and_a_comment_of_the_archive_is_not(
    tmp_path,
):
    table = RankTable.from_ranks(Ranks([1, 3, 7], [2, 3, 9], 14), side="tail", group=3, weight=0.5)
    path = tmp_path / "a.npz"
    table.save(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"of the second run"
    assert torch.equal(RankTable.load(path).rows, table.rows)
    whole = path.read_bytes()
    # and the end of them
    entries = [match.start() for match in re.finditer(rb"PK\x01\x02|PK\x05\x06", whole)]
    for first, second, third in zip(entries, entries[1:], entries[2:], strict=False):
        # the lengths of what else an entry may hold: extra fields, a comment
        for field in (30, 32):
            length = (
                int.from_bytes(whole[first + field : first + field + 2], "little") + third - second
            )
            path.write_bytes(
                whole[: first + field] + length.to_bytes(2, "little") + whole[first + field + 2 :]
            )
            with pytest.raises(ValueError, match="not a whole RankTable file"):
                RankTable.load(path)


def test_a_save_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    EMPTY.save(path)

    def broken(file, **arrays):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", broken)
    with pytest.raises(OSError, match="disk full"):
        TWO.save(path)
    assert os.listdir(tmp_path) == ["a.npz"]
    assert len(RankTable.load(path)) == 0


def claimed(path, shape, stored, method=zipfile.ZIP_DEFLATED):
    """A table whose optimistic ranks claim a shape but have another length, deflated 1000-fold."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": shape}
    )
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("rank_table_version.npy", saved(np.save, 1))
        archive.writestr("num_candidates.npy", saved(np.save, 5))
        archive.writestr("optimistic.npy", header.getvalue() + b"\1" * stored)


def error_of_loading(path, **options):
    """Message of an error that comes before memory is allocated for more than the file's arrays."""
    tracemalloc.start()
    try:
        with pytest.raises(
            ValueError, match=r"a\.npz is (not a whole RankTable file|not loaded): "
        ) as error:
            RankTable.load(path, **options)
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
        return str(error.value)
    finally:
        tracemalloc.stop()


def test_a_small_file_that_would_take_much_memory_is_an_error_until_the_caller_allows_it(tmp_path):
    path, n = tmp_path / "a.npz", 300_000
    claimed(path, (n,), n)
    assert path.stat().st_size < 5000
    message = error_of_loading(path, max_bytes=81 * n)  # and the headers
    assert "a.npz is not loaded: it would take " in message
    assert "max_bytes=24300000: if you trust it, allow more with max_bytes=" in message
    assert len(RankTable.load(path, max_bytes=81 * n + 1000)) == n
    claimed(path, (20_000_000,), 20_000_000)
    assert "max_bytes=1073741824" in error_of_loading(path)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [(0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)],
    ids=["zero", "negative", "float", "bool"],
)
def test_max_bytes_is_a_positive_int(wrong, error, tmp_path):
    path, n = tmp_path / "a.npz", 300_000
    claimed(path, (n,), n)
    with pytest.raises(error, match="max_bytes must be an int"):
        RankTable.load(path, max_bytes=wrong)


@pytest.mark.parametrize(
    ("shape", "stored"),
    [((10**15,), 10), ((10**9, 10**9), 10), ((-1, -10), 10), ((10,), 9), ((9,), 10)],
)
def test_a_header_that_claims_other_sizes_than_the_file_has_is_an_error(tmp_path, shape, stored):
    claimed(tmp_path / "a.npz", shape, stored, zipfile.ZIP_STORED)
    assert "'optimistic' is not a whole array" in error_of_loading(
        tmp_path / "a.npz", max_bytes=2**62
    )


def write_claim(path, number, place, claim):
    """A file with ``number`` ranks whose directory has another size, at ``place``."""
    claimed(path, (number,), number)
    content = path.read_bytes()
    at = content.rindex(b"PK\1\2") + place
    path.write_bytes(content[:at] + claim.to_bytes(4, "little") + content[at + 4 :])


@pytest.mark.parametrize(("place", "claim"), [(24, 10**9), (20, 10**8)])
def test_a_directory_that_claims_larger_sizes_is_an_error_or_changes_nothing(
    tmp_path, place, claim
):
    path = tmp_path / "a.npz"
    write_claim(path, 500, place, claim)
    try:
        table = RankTable.load(path)
    except ValueError as error:  # Python 3.11.2 checks for overlapping entries
        assert "Overlapped entries" in str(error)  # noqa: PT017
    else:
        assert table.ranks.optimistic.tolist() == [1] * 500


def test_a_directory_that_claims_a_smaller_size_is_an_error_before_it_is_decompressed(tmp_path):
    write_claim(tmp_path / "a.npz", 200_000_000, 24, 200)
    assert "Bad CRC-32" in error_of_loading(tmp_path / "a.npz")


def test_a_long_header_is_an_error_that_does_not_advise_to_unpickle(tmp_path):
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }" + b" " * 20_000
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr(
            "rank_table_version.npy", b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header
        )
    message = error_of_loading(tmp_path / "a.npz")
    assert "is not a whole array of numbers" in message
    assert "pickle" not in message


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("max_bytes", [1 << 20, 500])
def test_a_pipe_can_be_loaded_and_is_bounded(max_bytes, name, tmp_path):
    table = table_of(0, 20)
    table.save(tmp_path / name)
    content = (tmp_path / name).read_bytes()
    read, write = os.pipe()
    os.write(write, content)
    os.close(write)
    if max_bytes > len(content):
        assert torch.equal(RankTable.load(f"/dev/fd/{read}", max_bytes=max_bytes).rows, table.rows)
    else:
        with pytest.raises(
            ValueError, match="take at least 501 bytes of memory, and max_bytes=500:"
        ):
            RankTable.load(f"/dev/fd/{read}", max_bytes=max_bytes)
    os.close(read)


def test_a_file_keeps_its_mode_and_a_symbolic_link_its_target(tmp_path):
    path = tmp_path / "deep" / "a.npz"
    path.parent.mkdir()
    EMPTY.save(path)
    (tmp_path / "deep" / "other").write_text("")
    assert path.stat().st_mode == (tmp_path / "deep" / "other").stat().st_mode  # of the umask
    (tmp_path / "link").symlink_to("second")
    (tmp_path / "second").symlink_to("deep/a.npz")
    (tmp_path / "dangling").symlink_to("deep/new.npz")
    path.chmod(0o664)
    before = path.stat()
    for link, target in (("link", "a.npz"), ("dangling", "new.npz")):
        TWO.save(tmp_path / link)
        assert (tmp_path / link).is_symlink()
        assert len(RankTable.load(tmp_path / "deep" / target)) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o664
    assert path.stat().st_ino != before.st_ino  # replaced at once, not overwritten
    assert sorted(os.listdir(tmp_path)) == ["dangling", "deep", "link", "second"]


def test_a_pipe_is_written_to_and_other_devices_rejected(tmp_path, monkeypatch):
    TWO.save(tmp_path / "a.npz")
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as pool:
        got = pool.submit((tmp_path / "pipe").read_bytes)
        TWO.save(tmp_path / "pipe")
        assert got.result(20) == (tmp_path / "a.npz").read_bytes()
    assert (tmp_path / "pipe").is_fifo()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tmp_path / "socket"))
    for path in (tmp_path / "socket", "/dev/null"):
        with pytest.raises(OSError, match="Neither a file, a pipe nor a character device"):
            TWO.save(path)
        monkeypatch.setattr(stat, "S_ISBLK", lambda mode: True)
    assert (tmp_path / "socket").is_socket()


def test_an_open_file_is_written_to_at_its_place(tmp_path):
    """``>> log`` with --output /dev/stdout: what the log holds stays."""
    EMPTY.save(tmp_path / "a.npz")
    (tmp_path / "log").write_bytes(b"before")
    with (tmp_path / "log").open("ab") as log:
        EMPTY.save(f"/dev/fd/{log.fileno()}")
    content = (tmp_path / "a.npz").read_bytes()
    assert (tmp_path / "log").read_bytes() == b"before" + content


def test_a_file_that_must_not_be_written_to_is_not_replaced(tmp_path, monkeypatch):
    EMPTY.save(tmp_path / "a.npz")
    before = (tmp_path / "a.npz").stat()
    really = os.open

    def guarded(path, flags, *rest):  # root may write to everything
        if os.fspath(path).endswith("/a.npz"):
            raise PermissionError(13, "Permission denied", path)
        return really(path, flags, *rest)

    monkeypatch.setattr(os, "open", guarded)
    with pytest.raises(PermissionError):
        EMPTY.save(tmp_path / "a.npz")
    monkeypatch.setattr(os, "open", really)
    monkeypatch.setattr(
        os,
        "fsync",
        lambda descriptor: (_ for _ in ()).throw(OSError(28, "No space left on device")),
    )
    with pytest.raises(OSError, match="No space left"):
        EMPTY.save(tmp_path / "a.npz")
    assert os.listdir(tmp_path) == ["a.npz"]
    assert (tmp_path / "a.npz").stat().st_ino == before.st_ino
