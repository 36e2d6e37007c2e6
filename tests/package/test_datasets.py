"""Shipped candidate counts: against PyKEEN and brute force on the graphs it ships, and the figures of papers."""

import json
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from importlib.resources import files

import numpy as np
import pytest
from benchmarks.make_datasets import checksum

from torchrankmetrics import ExactExpectation, PrecomputedExpectation, RankMetricWarning, adjust, evaluate
from torchrankmetrics.datasets import candidate_counts, dataset_facts, dataset_names
from torchrankmetrics.datasets.facts import ENTITIES, KNOWN, SPLITS
from torchrankmetrics.datasets.files import number_triples, read_triples
from torchrankmetrics.datasets.histograms import candidate_histogram
from torchrankmetrics.theory.definitions import MEAN_RANK, MEAN_RECIPROCAL_RANK, hits_at

# data set, entities: test triples, distinct counts over both sides, least, mean to 3 places, largest
TEST = {
    ("nations", "all"): (201, 13, 2, 7.955, 14),
    ("kinships", "all"): (1074, 28, 74, 94.438, 104),
    ("umls", "all"): (661, 43, 2, 115.946, 135),
    ("countries_s1", "all"): (24, 5, 209, 241.542, 270),
    ("fb15k237", "all"): (20466, 319, 10178, 14305.629, 14541),
    ("wn18rr", "all"): (3134, 107, 40434, 40928.004, 40943),
    ("fb15k237", "train"): (20438, 319, 10153, 14270.338, 14505),
    ("wn18rr", "train"): (2924, 106, 40051, 40544.096, 40559),
}


def mean_of(counts):
    return Fraction(int((counts.num_candidates * counts.count).sum()), counts.num_tasks)


@pytest.mark.parametrize(("name", "entities"), TEST)
def test_figures_of_the_test_splits(name, entities):
    triples, distinct, least, mean, largest = TEST[name, entities]
    counts = candidate_counts(name, entities=entities)
    assert counts.num_tasks == 2 * triples
    assert len(counts.num_candidates) == distinct
    assert (counts.num_candidates[0], counts.num_candidates[-1]) == (least, largest)
    assert float(mean_of(counts)) == pytest.approx(mean, abs=6e-4)


def test_all_data_sets_are_known():
    assert set(dataset_names()) == {name for name, _ in TEST}


@pytest.mark.parametrize("name", dataset_names())
def test_facts_hang_together(name):
    facts = dataset_facts(name)
    assert set(facts.histograms) == {(s, e, side) for s in SPLITS for e in ENTITIES for side in ("head", "tail")}
    assert facts.source
    assert facts.licence
    for (split, entities, _), (numbers, count) in facts.histograms.items():
        assert (np.diff(numbers) > 0).all()
        assert numbers[0] >= 1
        assert numbers[-1] <= facts.num_entities[entities]
        assert count.min() >= 1
        assert count.sum() == facts.num_triples[split] if entities == "all" else count.sum() <= facts.num_triples[split]
    both = candidate_counts(name, "valid")
    parts = [candidate_counts(name, "valid", side) for side in ("head", "tail")]
    together = Counter()
    for part in parts:
        together.update(dict(zip(part.num_candidates.tolist(), part.count.tolist(), strict=True)))
    assert dict(zip(both.num_candidates.tolist(), both.count.tolist(), strict=True)) == together


@pytest.mark.parametrize("name", dataset_names())
def test_file_says_what_was_filtered(name):
    content = json.loads((files("torchrankmetrics.datasets") / "data" / f"{name}.json").read_text())
    for entry in content["histograms"]:
        assert tuple(entry["known"]) == KNOWN[entry["split"]] == SPLITS[: SPLITS.index(entry["split"]) + 1]


@pytest.mark.parametrize("name", ["nations", "kinships", "umls"])
class TestAgainstPyKEEN:
    @pytest.fixture
    def parts(self, name):
        pytest.importorskip("pykeen", reason="PyKEEN 1.11.1 is not installed: pip install 'torchrankmetrics[dev]'")
        from pykeen.datasets import get_dataset

        dataset = get_dataset(dataset=name)
        return dict(zip(SPLITS, (dataset.training, dataset.validation, dataset.testing), strict=True))

    def test_counts_are_one_more_than_its_candidate_set_sizes(self, name, parts):
        from pykeen.evaluation.evaluator import get_candidate_set_size

        for split in SPLITS:
            known = [parts[other].mapped_triples for other in KNOWN[split]]
            frame = get_candidate_set_size(
                parts[split].mapped_triples,
                additional_filter_triples=known,
                num_entities=parts["train"].num_entities,
            )
            for side in ("head", "tail"):
                counts = candidate_counts(name, split, side)
                theirs = Counter((frame[f"{side}_candidates"] + 1).tolist())
                assert dict(zip(counts.num_candidates.tolist(), counts.count.tolist(), strict=True)) == theirs

    def test_the_triples_are_the_same(self, name, parts):
        facts = dataset_facts(name)
        for split, part in parts.items():
            triples = [tuple(map(str, triple)) for triple in part.triples]
            assert checksum(triples) == facts.checksum[split]
            assert facts.num_triples[split] == part.num_triples
        assert facts.num_entities["train"] == parts["train"].num_entities
        assert facts.num_relations == parts["train"].num_relations


TRAIN = [("a", "r", "b"), ("a", "r", "c"), ("b", "s", "a")]
TEST_TRIPLES = [("a", "r", "d"), ("c", "r", "b"), ("a", "q", "b"), ("b", "r", "c")]


def brute(side, entities):
    """Candidates by their definition, over labels."""
    everything = {x for h, _, t in TRAIN + TEST_TRIPLES for x in (h, t)}
    seen = {x for h, _, t in TRAIN for x in (h, t)}
    allowed = everything if entities == "all" else seen
    true, result = set(TRAIN + TEST_TRIPLES), []
    for h, r, t in TEST_TRIPLES:
        if entities == "train" and not ({h, t} <= seen and r in {r for _, r, _ in TRAIN}):
            continue
        own = t if side == "tail" else h
        result.append(
            sum(e == own or ((h, r, e) if side == "tail" else (e, r, t)) not in true for e in allowed),
        )
    return Counter(result)


@pytest.mark.parametrize("entities", ENTITIES)
@pytest.mark.parametrize("side", ["head", "tail"])
def test_histogram_by_brute_force(side, entities):
    graph = number_triples({"train": TRAIN, "test": TEST_TRIPLES})
    assert graph.entities == ("a", "b", "c", "d")
    numbers, count = candidate_histogram(graph.splits, "test", ("train", "test"), side, entities=entities)
    assert dict(zip(numbers.tolist(), count.tolist(), strict=True)) == brute(side, entities)
    assert brute(side, "all") != brute(side, "train")


def test_script_makes_the_files_from_triples(tmp_path):
    """The whole script, on folders of labels: for one data set of the true triples, the shipped file comes out."""
    pytest.importorskip("pykeen", reason="PyKEEN 1.11.1 is not installed: pip install 'torchrankmetrics[dev]'")
    from benchmarks.make_datasets import DATASETS
    from pykeen.datasets import Nations

    dataset = Nations()
    for name in DATASETS:
        (tmp_path / name).mkdir()
        for split, part in zip(SPLITS, (dataset.training, dataset.validation, dataset.testing), strict=True):
            lines = ("\t".join(triple) + "\n" for triple in part.triples)
            (tmp_path / name / f"{split}.tsv").write_text("".join(lines))
    out = tmp_path / "out"
    out.mkdir()
    command = [sys.executable, "-m", "benchmarks.make_datasets", str(tmp_path), "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    shipped = (files("torchrankmetrics.datasets") / "data" / "nations.json").read_text()
    assert (out / "nations.json").read_text() == shipped


# --- used by adjust and PrecomputedExpectation ------------------------------------------------------------------------


def test_adjust_takes_a_name():
    counts = candidate_counts("fb15k237")
    mean = mean_of(counts)
    assert adjust(250, "mr", "FB15k-237") == pytest.approx(float(1 - 2 * 249 / (mean - 1)), rel=1e-14)
    every = np.repeat(counts.num_candidates, counts.count)
    for view in ("adjusted_index", "z_score"):
        assert adjust(0.355, "mrr", "fb15k237", view=view) == adjust(0.355, "mrr", every, view=view)
    heads = candidate_counts("fb15k237", side="head")
    assert adjust(0.355, "mrr", heads) != adjust(0.355, "mrr", "fb15k237")


@pytest.mark.parametrize("definition", [MEAN_RANK, MEAN_RECIPROCAL_RANK, hits_at(3)], ids=lambda d: d.name)
def test_precomputed_expectation_takes_a_name(definition):
    stored, counts = PrecomputedExpectation("nations"), candidate_counts("nations")
    every = np.repeat(counts.num_candidates, counts.count)
    assert stored.moments(definition, [2]) == ExactExpectation().moments(definition, every)
    by_hand = {"mr": lambda n: (n + 1) / 2, "mrr": lambda n: sum(1 / k for k in range(1, n + 1)) / n}
    f = by_hand.get(definition.name, lambda n: min(3, n) / n)
    assert stored.moments(definition, [2]).mean == pytest.approx(np.mean([f(int(n)) for n in every]), rel=1e-12)
    own = evaluate([1, 2], 14, [definition.name], views=["adjusted_index"])
    seen = evaluate([1, 2], 14, [definition.name], views=["adjusted_index"], expectation=stored)
    assert own.keys() == seen.keys()
    assert own != seen or definition.name == "hits_at_3"  # both tasks are hits: 1 on any data set


def test_adjust_warns_where_no_split_leaves_room():
    with pytest.warns(RankMetricWarning, match="undefined"):
        adjust(1.0, "hits@14", "nations")


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fb15k",), r"unknown dataset 'fb15k'; did you mean 'fb15k237'.*Known are countries_s1, fb15k237, kinships"),
        (("",), "unknown dataset ''. Known are countries_s1"),
        (("nations", "dev"), "split must be one of 'train', 'valid', 'test'; got 'dev'"),
        (("nations", "test", "both"), "side must be one of None, 'head', 'tail'; got 'both'"),
        (("nations", "test", None, "seen"), "entities must be one of 'all', 'train'; got 'seen'"),
    ],
)
def test_unknown_names_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        candidate_counts(*arguments)
    with pytest.raises(TypeError, match="dataset must be a str"):
        candidate_counts(7)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty: expected a triple"),
        (b"a\tr\tb\na\tr\n", r"line 2: expected head, relation, tail separated by tabs, got 2 columns: 'a\\tr'"),
        (b"a r b\n", "line 1: .* got 1 column: 'a r b'"),
        (b"a\tr\tb\tc\n", "got 4 columns"),
        (b"a\tr\tb\n\na\tr\tc\n", "line 2: .* got 1 column: ''"),
        (b"a\t\tb\n", "line 1"),
        (b"\xff\xfe\x00", "no UTF-8 text"),
    ],
)
def test_files_that_are_no_triples_are_refused(tmp_path, content, message):
    path = tmp_path / "triples.tsv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_triples(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_files_are_read_with_any_line_end(tmp_path):
    path = tmp_path / "triples.tsv"
    path.write_bytes("\ufeffa\tr\tb\u2028b\r\n1\tr\t2".encode())
    assert read_triples(path) == [("a", "r", "b\u2028b"), ("1", "r", "2")]
    with pytest.raises(FileNotFoundError):
        read_triples(tmp_path / "none.tsv")
