"""KnownPositives and KnownTriples against dictionaries of sets.

In files, all processes share one index, with results as in memory.
"""

import copy
import hashlib
import json
import multiprocessing
import os
import pickle
import re
import stat
import sys
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

import reference_ranks as reference
from fuzzing import cases
from random_graphs import graph
from torchrankmetrics import KnownTriples
from torchrankmetrics.kg import RELATION_CATEGORIES, KnownPositives, relation_categories

HEADER = 4096
IDS = st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 5))
LISTS = st.lists(IDS, max_size=25)
TRIPLES = torch.tensor([[0, 0, 1], [0, 0, 3], [2, 1, 0], [0, 0, 1], [4, 1, 3], [4, 0, 3]])


@pytest.fixture
def path(tmp_path):
    KnownTriples(TRIPLES, num_entities=7).save(tmp_path / "known.bin")
    return tmp_path / "known.bin"


def as_tensor(triples):
    return torch.tensor(triples, dtype=torch.int64).reshape(-1, 3)


def same(one, two):
    """Whether two exclusions are the same rows, and bounded alike."""
    bounds = (one.longest, one.num_columns) == (two.longest, two.num_columns)
    return bounds and torch.equal(one.pairs(), two.pairs())


@settings(max_examples=15)
@given(
    st.lists(st.lists(IDS, max_size=6), max_size=6),
    st.none() | st.integers(6, 9),
    st.booleans(),
    st.lists(st.tuples(st.integers(-2, 9), st.integers(-2, 9)), max_size=6),
)
def test_a_saved_index_has_the_same_look_ups(
    tmp_path_factory, parts, num_entities, relations, requested
):
    folder = tmp_path_factory.mktemp("known")
    parts = [*map(as_tensor, parts)]
    known = KnownTriples(*parts, num_entities=num_entities)
    known.save(folder / "saved.bin", relations=relations)
    saved = KnownTriples.open(folder / "saved.bin")
    saved.verify()
    assert saved.num_entities == known.num_entities
    first, second = torch.tensor(requested, dtype=torch.int64).reshape(-1, 2).T
    triples = torch.cat([as_tensor([]), *parts])
    for opened in (saved, copy.deepcopy(saved)):  # through a pickle
        for side in ("tails", "heads", "relations"):
            assert same(getattr(opened, side)(first, second), getattr(known, side)(first, second))
        for side in ("tail", "head"):
            assert torch.equal(
                opened.num_candidates(triples, side), known.num_candidates(triples, side)
            )
            pairs = zip(opened.queries(triples, side), known.queries(triples, side), strict=True)
            assert all(torch.equal(one, two) for one, two in pairs)
    assert sorted(os.listdir(folder)) == ["saved.bin"]


def changed(content, old, new):
    """The content with another header, whose digest is right again."""
    head = content[: HEADER - 32].replace(old, new).rstrip(b" ").ljust(HEADER - 32)
    return head + hashlib.sha256(head).digest() + content[HEADER:]


PAGES = ("Private_Dirty", "Rss")
OTHER = "big" if sys.byteorder == "little" else "little"
FOREIGN = {
    "empty": (lambda c: b"", "it is empty"),
    "truncated": (lambda c: c[:-8], "its header declares"),
    "cut header": (lambda c: c[:1000], "header is damaged or cut"),
    "no sides": (lambda c: changed(c, b'"sides"', b'"edges"'), "its header is inconsistent"),
    "no sizes": (lambda c: changed(c, b'"sizes"', b'"dizes"'), "its header is inconsistent"),
    "four arrays": (lambda c: changed(c, b'"lengths": [', b'"lengths": [0, '), "too many values"),
    "newer": (
        lambda c: changed(c, b"triples 2\n", b"triples 3\n"),
        "it has version 3; this library reads 1, 2",
    ),
    "other order": (
        lambda c: changed(c, sys.byteorder.encode(), OTHER.encode()),
        f"its numbers are {OTHER}-endian",
    ),
}


@pytest.mark.parametrize(("change", "message"), FOREIGN.values(), ids=FOREIGN)
def test_a_damaged_file_raises_when_it_is_opened(change, message, path):
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(
        ValueError, match=rf"known.bin is not a whole file of known triples: .*{message}"
    ):
        KnownTriples.open(path)


def test_every_damaged_byte_of_the_header_is_seen_when_opened_and_of_the_rest_by_verify(path):
    content = path.read_bytes()
    for at in (5, 31, 40, 100, 200, HEADER - 40, HEADER - 1, *range(HEADER, len(content), 7)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        if at < HEADER:
            with pytest.raises(ValueError, match="is not a whole file"):
                KnownTriples.open(path)
            continue
        opened = KnownTriples.open(path)
        for read, arguments in ((opened.verify, ()), (opened.save, (path.with_name("again.bin"),))):
            with pytest.raises(
                ValueError, match=r"known.bin is damaged: a checksum of the (tail|head) side"
            ):
                read(*arguments)


def of_version_1(content):
    """The file as 0.2 wrote it: without blocks, one digest of each array in the header."""
    about = json.loads(content[33 : HEADER - 32])
    at = HEADER
    for side in about["sides"].values():
        side["sha256"] = []
        for length in side["lengths"]:
            side["sha256"].append(hashlib.sha256(content[at : at + 8 * length]).hexdigest())
            at += 8 * length
    head = (b"torchrankmetrics known triples 1\n" + json.dumps(about).encode()).ljust(HEADER - 32)
    return head + hashlib.sha256(head).digest() + content[HEADER:at]


@pytest.mark.parametrize("version", [1, 2])
def test_look_ups_in_a_damaged_file_are_an_error_or_right(version, tmp_path):
    """Blocks of 4096 entries: some are damaged, some are not, and some look-ups find neither."""
    random, path = np.random.default_rng(version), tmp_path / "known.bin"
    triples = torch.from_numpy(random.integers(0, 400, (9000, 3)))
    known = KnownTriples(triples, num_entities=500)
    known.save(path)
    content = path.read_bytes() if version == 2 else of_version_1(path.read_bytes())
    path.write_bytes(content)
    assert KnownTriples.open(path).verify() is None
    errors = 0
    for case in range(120):
        damaged = bytearray(content)
        for at in random.integers(HEADER, len(content), size=1 + 3 * (case % 2)):
            damaged[at] ^= 1 << random.integers(8)
        path.write_bytes(damaged)
        opened, some = KnownTriples.open(path), triples[random.integers(0, 9000, 5)].clone()
        some[0] = 450
        for side in ("tails", "heads"):
            first, second = some[:, :2].T if side == "tails" else some[:, 1:].T
            try:
                found = getattr(opened, side)(first, second).pairs()
            except ValueError as error:
                assert "known.bin is damaged: a checksum of the" in str(error)  # noqa: PT017
                errors += 1
            else:
                assert torch.equal(found, getattr(known, side)(first, second).pairs())
    assert 5 < errors < 235 or version == 1


def test_opening_reads_no_entries_and_look_ups_read_the_blocks_that_they_use(tmp_path):
    path, number = tmp_path / "known.bin", torch.arange(100_000)
    KnownTriples(torch.stack([number, number % 7, number], 1)).save(path)
    content = bytearray(path.read_bytes())
    content[HEADER + 8 * 90_000] ^= 1  # a key, which is far from those of small heads
    path.write_bytes(content)
    opened = KnownTriples.open(path)
    assert opened.tails(number[:4], number[:4] % 7).pairs()[1].tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="is damaged"):
        opened.tails(number[90_000:90_001], number[90_000:90_001] % 7)


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [("key", -1, 10), ("start", 0, 1), ("start", 1, 1), ("positives", 0, 4), ("positives", 1, 1)],
)
def test_verify_checks_the_order_of_look_ups(name, at, value):
    known = KnownTriples(TRIPLES)
    known.verify()
    head = known._sides["head"]
    head.index = head.index._replace(longest=head.index.longest + 1)
    with pytest.raises(ValueError, match="the head side is not sorted, or has ids out of range"):
        known.verify()
    getattr(known._sides["tail"].index, name)[at] = value
    with pytest.raises(
        ValueError,
        match="the index is not a valid index: the tail side is not sorted, or has ids out",
    ):
        known.verify()


def test_a_pickle_is_a_path_and_knows_its_file(path):
    opened = KnownTriples.open(path)
    content = pickle.dumps(opened)
    assert len(content) < 500
    # of one in memory: what it holds
    assert pickle.loads(pickle.dumps(KnownTriples(TRIPLES))).num_entities == 5
    KnownTriples(TRIPLES, num_entities=8).save(path)
    with pytest.raises(
        ValueError, match="is another file of known triples than the one that was pickled"
    ):
        pickle.loads(content)
    # what is open stays as it was
    assert opened.num_candidates(TRIPLES, "tail").tolist() == [6, 6, 7, 6, 7, 7]


def _look_up(known):
    """Answers, and KiB of the index in this process: its own and those shared with others."""
    known.verify()
    answers = known.tails(torch.tensor([0]), torch.tensor([0])).pairs()[1].tolist()
    with open("/proc/self/smaps", encoding="ascii") as file:
        maps = re.findall(
            r"^\w+-\w+ (\S+) .*large\.bin\n((?:\w+: .*\n)+)", file.read(), re.MULTILINE
        )
    assert maps
    assert all(rights.startswith("r--") for rights, _ in maps)  # nobody can write to it
    sizes = {
        name: [re.search(rf"^{name}: +(\d+)", text, re.MULTILINE)[1] for _, text in maps]
        for name in PAGES
    }
    return answers, {name: sum(map(int, found)) for name, found in sizes.items()}


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="/proc/self/smaps is Linux's")
def test_processes_share_the_pages_of_a_file_and_own_none(tmp_path):
    """A forked worker gets the triples as spawned ones do: by a pickle."""
    number = torch.arange(30_000)
    KnownTriples((number % 100, number % 7, number // 3)).save(tmp_path / "large.bin")
    with multiprocessing.get_context("fork").Pool(1) as workers:
        answers, pages = workers.apply(_look_up, (KnownTriples.open(tmp_path / "large.bin"),))
    assert answers == [number // 3 for number in range(0, 30_000, 700)]
    assert pages["Rss"] * 1024 > 0.9 * os.path.getsize(tmp_path / "large.bin")
    assert pages["Private_Dirty"] == 0


def test_a_file_that_cannot_be_mapped_raises_and_stays(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", "/dev/null"):
        with pytest.raises(ValueError, match="is not a regular file"):
            KnownTriples.open(path)
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    with pytest.raises(FileNotFoundError):
        KnownTriples.open(tmp_path / "missing")


def rows_of(exclusion):
    pairs = exclusion.pairs()
    return [pairs[1][pairs[0] == i].tolist() for i in range(len(exclusion))]


@cases(50, 1500)
@given(LISTS, LISTS, st.lists(st.tuples(st.integers(-2, 9), st.integers(-2, 9)), max_size=8))
def test_lookups_are_those_of_a_dictionary(train, test, queries):
    graph = reference.Graph([*train, *test])
    known = KnownTriples(as_tensor(train), as_tensor(test))
    first, second = torch.tensor(queries, dtype=torch.int64).reshape(-1, 2).T
    assert rows_of(known.tails(first, second)) == [
        sorted(graph.answers("tail", query)) for query in queries
    ]
    assert rows_of(known.heads(first, second)) == [
        sorted(graph.answers("head", query)) for query in queries
    ]


@pytest.mark.filterwarnings("ignore:the look-up of known positives")
@cases(50, 1500)
@given(LISTS, LISTS, st.sampled_from(["tail", "head"]), st.sets(st.integers(0, 6)), st.booleans())
def test_filtered_candidates_are_counted(train, test, side, outside, as_mask):
    allowed = sorted(
        set(range(7)) - outside | {reference.split(triple, side)[1] for triple in test}
    )
    some = torch.tensor(allowed, dtype=torch.int64)
    if as_mask:
        some = torch.zeros(7, dtype=torch.bool).index_fill_(0, some, True)
    # a task may be unknown to the index: it counts itself all the same
    for triples in (train, [*train, *test]):
        graph, known = reference.Graph(triples), KnownTriples(as_tensor(triples), num_entities=7)
        for candidates, listed in ((None, range(7)), (some, allowed)):
            expected = [graph.num_candidates(triple, side, listed) for triple in test]
            assert (
                known.num_candidates(as_tensor(test), side, candidates=candidates).tolist()
                == expected
            )


@cases(25, 600)
@given(LISTS, st.sampled_from(["tail", "head"]))
def test_queries_are_unique_and_keep_every_task(test, side):
    queries, target = KnownTriples(as_tensor(test)).queries(as_tensor(test), side)
    requested = [reference.split(triple, side)[0] for triple in test]
    assert len(queries) == len(set(requested))
    assert [tuple(queries[row].tolist()) for row in target[0]] == requested
    assert target[1].tolist() == [reference.split(triple, side)[1] for triple in test]


@cases(25, 600)
@given(st.integers(1, 3), st.lists(st.tuples(*[st.integers(0, 4)] * 4), max_size=20))
def test_keys_of_any_width(width, lines):
    lines = torch.tensor(lines, dtype=torch.int64).reshape(-1, 4)
    queries, answers = lines[:, :width], lines[:, 3]
    known = KnownPositives(queries[:, 0] if width == 1 else queries, answers)
    requested = torch.cat([queries, queries + 3])
    expected = [sorted(set(answers[(queries == query).all(1)].tolist())) for query in requested]
    assert rows_of(known(requested)) == expected
    if width == 1:
        assert rows_of(known(requested[:, 0])) == expected


def test_an_empty_index_excludes_nothing():
    for known in (KnownTriples(), KnownTriples(as_tensor([]), num_entities=5)):
        exclusion = known.tails(torch.tensor([0, 3]), torch.tensor([1, 2]))
        assert rows_of(exclusion) == [[], []]
        assert exclusion.longest == exclusion.num_columns == 0
    assert known.num_candidates(as_tensor([(0, 0, 4)]), "head").tolist() == [5]
    assert (
        len(known.tails(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64))) == 0
    )


def test_ids_up_to_the_width_of_a_key_are_distinguished():
    known = KnownPositives(torch.tensor([[2**30, 5]]), torch.tensor([2**25]))
    assert rows_of(known(torch.tensor([[2**30, 5], [2**30, 4]]))) == [[2**25], []]
    largest = 2**31 - 1
    known = KnownPositives(torch.tensor([largest - 1]), torch.tensor([largest]))
    assert rows_of(known(torch.tensor([largest - 1, largest - 2]))) == [[largest], []]


@pytest.mark.parametrize(
    ("queries", "answer"),
    [(torch.tensor([2**31 - 1]), 2**31 - 1), (torch.tensor([[2**40, 5]]), 2**30)],
    ids=["an id", "two ids"],
)
def test_ids_too_large_for_a_key_raise(queries, answer):
    with pytest.raises(ValueError, match=r"too large.*63-bit"):
        KnownPositives(queries, torch.tensor([answer]))


def test_copies_for_devices_are_made_once():
    known = KnownPositives([0], [1])
    assert known.to("cpu") is known
    assert known.to("meta") is known.to("meta")
    exclusion = KnownTriples(as_tensor([(0, 0, 1), (0, 0, 5), (1, 0, 2)])).tails(
        *torch.tensor([[1], [0]])
    )
    # of the whole index: no look-up waits for its own
    assert (exclusion.longest, exclusion.num_columns) == (2, 6)


def categories(triples, threshold):
    """By Bordes et al.: the mean number of heads given (r, t), and of tails given (h, r)."""
    triples = {tuple(x) for x in triples}
    result = {}
    for r in sorted({r for _, r, _ in triples}):
        pairs = [(h, t) for h, s, t in triples if s == r]
        tails = Fraction(len(pairs), len({h for h, _ in pairs}))
        heads = Fraction(len(pairs), len({t for _, t in pairs}))
        result[r] = ("1" if heads < threshold else "n") + "-" + ("1" if tails < threshold else "n")
    return result


@pytest.mark.parametrize("threshold", [1.5, 1.25, 2, 4])
@pytest.mark.parametrize("seed", range(2))
def test_a_category_is_two_means_against_the_threshold(seed, threshold):
    triples = graph(seed, n=60, columns=(9, 25, 6))
    triples = torch.cat([triples, triples[:20]])  # repeats count once
    expected = categories(triples.tolist(), Fraction(threshold))
    got = relation_categories(triples, num_relations=30, threshold=threshold).tolist()
    assert len(got) == 30
    assert {r: RELATION_CATEGORIES[c] for r, c in enumerate(got) if c != -1} == expected
    assert len(set(expected.values())) > (1 if threshold < 4 else 0)
    # a mean of exactly 1.5 is "n": below it is "1" in the paper
    assert relation_categories(torch.tensor([[0, 0, 1], [0, 0, 2], [1, 0, 3]])).tolist() == [1]
