"""Shipped candidate counts against PyKEEN, brute force and published figures."""

import re
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from importlib.resources import files

import numpy as np
import pytest
from benchmarks.make_datasets import candidate_histogram, checksum, number_triples, sources

from reference_ranks import Graph
from torchrankmetrics import adjust, evaluate
from torchrankmetrics.datasets import (
    PrecomputedExpectation,
    candidate_counts,
    dataset_facts,
    dataset_names,
)
from torchrankmetrics.datasets.facts import ENTITIES, SPLITS
from torchrankmetrics.definitions.tasks import MEAN_RECIPROCAL_RANK
from torchrankmetrics.null import ExactExpectation


def histogram(counts):
    return Counter(dict(zip(counts.num_candidates.tolist(), counts.count.tolist(), strict=True)))


# (entities, relations), triples by split. CoDEx, ILPC: their READMEs; NELL-995, FB13, WN18: headers
# of OpenKE's files; FB15k-237-10, InGram: recalled from the tables of ULTRA (arXiv 2310.04562), not
# looked up; DBP15K: 15,000 pairs, 30% seeds (JAPE)
PUBLISHED = {
    "codex-s": ((2034, 42), {"train": 32888, "valid": 1827, "test": 1828}),
    "codex-m": ((17050, 51), {"train": 185584, "valid": 10310, "test": 10311}),
    "ilpc-small": ((6653, None), {"train": 20960, "valid": 2908, "test": 2902}),
    "ilpc-large": ((29246, None), {"train": 77044, "valid": 10179, "test": 10184}),
    "nell-995": ((75492, 200), {"train": 149678, "valid": 543, "test": 3992}),
    "fb13": ((75043, 13), {"train": 316232, "valid": 5908, "test": 23733}),
    "wn18": ((40943, 18), {"train": 141442, "valid": 5000, "test": 5000}),
    "fb15k237-10": ((11512, 237), {"train": 27211, "valid": 15624, "test": 18150}),
    "ingram-fb-100": ((2624, 77), {"train": 6987, "valid": 2329, "test": 2329}),
    **{f"dbp15k-{language}-en": ((10500, 1), {"test": 10500}) for language in ("zh", "ja", "fr")},
}
REPEATED_IN_TRAIN = {
    "countries_s1",
    "countries_s2",
    "countries_s3",
    "wd-singer",
    "dbpedia50",
    "conceptnet-100k",
}
REPEATED_IN_TRAIN |= {"hm-1k", "hm-3k", "hm-5k"}


def test_every_source_is_shipped_and_nothing_else():
    assert [source.name for source in sorted(sources(), key=lambda source: source.name)] == list(
        dataset_names()
    )
    assert len(dataset_names()) >= 30
    for source in sources():
        facts = dataset_facts(source.name)
        assert (facts.title, facts.license, facts.protocol) == (
            source.title,
            source.license,
            source.protocol,
        )
        assert facts.synonyms == source.synonyms
        assert tuple(facts.num_triples) == tuple(source.files)


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_are_those_published(name):
    facts, ((num_entities, num_relations), triples) = dataset_facts(name), PUBLISHED[name]
    assert (facts.num_entities["all"], facts.num_triples) == (num_entities, triples)
    assert num_relations in (None, facts.num_relations)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("codex-s", "CoDExSmall"),
        ("codex-m", "CoDExMedium"),
        ("wn18", "WN18"),
        ("fb15k237", "FB15k237"),
    ]
    + [("wn18rr", "WN18RR"), ("wd50kt", "WD50KT"), ("dbpedia50", "DBpedia50")],
)
def test_sizes_are_those_of_pykeen(name, other):
    """PyKEEN drops repeated triples, and those with an entity or relation that is not in train."""
    datasets = pytest.importorskip("pykeen.datasets", reason="PyKEEN 1.11.1 is not installed")
    theirs = getattr(datasets, other).__docdata__["statistics"]
    facts = dataset_facts(name)
    assert facts.num_entities["train"] == theirs["entities"]
    if name not in REPEATED_IN_TRAIN:
        assert facts.num_triples["train"] == theirs["training"]
        for split, word in (("valid", "validation"), ("test", "testing")):
            assert candidate_counts(name, split, "tail", entities="train").num_tasks == theirs[word]


@pytest.mark.parametrize("name", dataset_names())
def test_facts_of_a_dataset_agree(name):
    facts = dataset_facts(name)
    for split, known in facts.known.items():
        before = tuple(
            other for other in SPLITS[: SPLITS.index(split) + 1] if other in facts.num_triples
        )
        assert known == (() if name.startswith("dbp15k") else before)
    sides = ("head", "tail")
    assert set(facts.histograms) == {
        (s, e, side) for s in facts.num_triples for e in ENTITIES for side in sides
    }
    assert all((facts.source, facts.license, facts.protocol))
    for (split, entities, _), (numbers, count) in facts.histograms.items():
        assert (np.diff(numbers) > 0).all()
        assert 1 <= numbers[0] <= numbers[-1] <= facts.num_entities[entities]
        assert count.min() >= 1
        assert (
            count.sum() == facts.num_triples[split]
            if entities == "all"
            else count.sum() <= facts.num_triples[split]
        )
    assert candidate_counts(name).num_tasks == 2 * facts.num_triples["test"]
    together = sum((histogram(candidate_counts(name, side=side)) for side in sides), Counter())
    assert histogram(candidate_counts(name)) == together


def test_queries_of_train_have_as_many_tasks_as_relevant_entities():
    """Filtered by train alone, m entities of a query have m tasks of N - m + 1 candidates each."""
    for name in (
        {*dataset_names()}
        - REPEATED_IN_TRAIN
        - {name for name in dataset_names() if "dbp15k" in name}
    ):
        for side in ("head", "tail"):
            numbers, count = dataset_facts(name).histograms["train", "all", side]
            assert (count % (dataset_facts(name).num_entities["all"] + 1 - numbers) == 0).all(), (
                name
            )


@pytest.mark.parametrize("name", ["nations", "kinships", "umls"])
def test_triples_are_those_of_pykeen_and_counts_one_more_than_its_candidate_set_sizes(name):
    datasets = pytest.importorskip("pykeen.datasets", reason="PyKEEN 1.11.1 is not installed")
    from pykeen.evaluation.evaluator import get_candidate_set_size

    dataset, facts = datasets.get_dataset(dataset=name), dataset_facts(name)
    parts = dict(zip(SPLITS, (dataset.training, dataset.validation, dataset.testing), strict=True))
    num_entities = parts["train"].num_entities
    assert (facts.num_entities["train"], facts.num_relations) == (
        num_entities,
        parts["train"].num_relations,
    )
    for split, part in parts.items():
        assert (
            checksum([tuple(map(str, triple)) for triple in part.triples]) == facts.checksum[split]
        )
        assert facts.num_triples[split] == part.num_triples
        known = [parts[other].mapped_triples for other in SPLITS[: SPLITS.index(split) + 1]]
        frame = get_candidate_set_size(
            part.mapped_triples, additional_filter_triples=known, num_entities=num_entities
        )
        for side in ("head", "tail"):
            theirs = Counter((frame[f"{side}_candidates"] + 1).tolist())
            assert histogram(candidate_counts(name, split, side)) == theirs


TRAIN = [("a", "r", "b"), ("a", "r", "c"), ("b", "s", "a")]
TEST_TRIPLES = [("a", "r", "d"), ("c", "r", "b"), ("a", "q", "b"), ("b", "r", "c")]


def brute(side, entities):
    """Candidates by their definition, over labels."""
    everything = {x for h, _, t in TRAIN + TEST_TRIPLES for x in (h, t)}
    seen = {x for h, _, t in TRAIN for x in (h, t)}
    allowed = everything if entities == "all" else seen
    graph, relations = Graph(TRAIN + TEST_TRIPLES), {r for _, r, _ in TRAIN}
    kept = [
        (h, r, t)
        for h, r, t in TEST_TRIPLES
        if entities == "all" or ({h, t} <= seen and r in relations)
    ]
    return Counter(graph.num_candidates(triple, side, allowed) for triple in kept)


@pytest.mark.parametrize("entities", ENTITIES)
@pytest.mark.parametrize("side", ["head", "tail"])
def test_histogram_by_brute_force(side, entities):
    splits, labels, _ = number_triples({"train": TRAIN, "test": TEST_TRIPLES})
    assert labels == ["a", "b", "c", "d"]
    numbers, count = candidate_histogram(
        splits, "test", ("train", "test"), side, entities=entities, num_entities=4
    )
    assert dict(zip(numbers.tolist(), count.tolist(), strict=True)) == brute(side, entities)
    assert brute(side, "all") != brute(side, "train")


@pytest.mark.slow
def test_script_makes_the_shipped_files(tmp_path):
    pytest.importorskip(
        "pykeen", reason="PyKEEN 1.11.1 is not installed: pip install 'torchrankmetrics[dev]'"
    )
    names = ("nations", "umls")
    options = [str(tmp_path), "--out", str(tmp_path), "--only", *names]
    subprocess.run(
        [sys.executable, "-m", "benchmarks.make_datasets", *options],
        check=True,
        capture_output=True,
    )
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.json" for name in names}
    for name in names:
        shipped = files("torchrankmetrics.datasets") / "data" / f"{name}.json"
        assert (tmp_path / f"{name}.json").read_text() == shipped.read_text()


def test_usual_names_are_found_and_unambiguous():
    written = ["codex_small", "FB15k-237 v1", "nell_v2", "ILPC2022 small", "Kinship"]
    names = ["codex-s", "fb15k237-v1", "nell995-v2", "ilpc-small", "kinships"]
    assert [dataset_facts(one).name for one in written] == names
    every = [word for name in dataset_names() for word in (name, *dataset_facts(name).synonyms)]
    assert len({re.sub("[-_ ]", "", word.lower()) for word in every}) == len(every)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("fb15k",), ValueError, r"unknown dataset 'fb15k'.*dataset_names\(\)"),
        (("",), ValueError, "unknown dataset ''"),
        ((7,), TypeError, "dataset must be a str"),
        (("hm-1k", "valid"), ValueError, "split 'valid' is none of hm-1k, which has train, test$"),
        (
            ("nations", "dev"),
            ValueError,
            "split must be one of 'train', 'valid', 'test'; got 'dev'",
        ),
        (
            ("nations", "test", "both"),
            ValueError,
            "side must be one of None, 'head', 'tail'; got 'both'",
        ),
        (
            ("nations", "test", None, "seen"),
            ValueError,
            "entities must be one of 'all', 'train'; got 'seen'",
        ),
    ],
)
def test_unknown_names_raise(arguments, error, message):
    with pytest.raises(error, match=message):
        candidate_counts(*arguments)
    if len(arguments) == 1 and error is ValueError:
        for lookup in (dataset_facts, lambda name: adjust(0.3, "mrr", name)):
            with pytest.raises(error, match=message):
                lookup(*arguments)


def test_a_name_replaces_candidate_counts():
    counts = candidate_counts("fb15k237")
    every = np.repeat(counts.num_candidates, counts.count)
    mean = Fraction(int(every.sum()), len(every))
    assert adjust(250, "mr", "FB15k-237") == pytest.approx(
        float(1 - 2 * 249 / (mean - 1)), rel=1e-14
    )
    assert adjust(0.355, "mrr", "fb15k237", view="z_score") == adjust(
        0.355, "mrr", every, view="z_score"
    )
    stored = PrecomputedExpectation("fb15k237")
    assert stored.moments(MEAN_RECIPROCAL_RANK, [2]) == ExactExpectation().moments(
        MEAN_RECIPROCAL_RANK, every
    )
    own, other = (evaluate([1, 2], 14, "adjusted_mrr", expectation=one) for one in (None, stored))
    assert own.keys() == other.keys()
    assert own != other
