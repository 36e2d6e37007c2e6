"""The blocks of docs/replace_your_evaluator.md.

The old way, the new way and brute force agree, on several graphs.
"""

import functools
import re

import pytest
import scipy.stats

import reference_ranks as reference
from scripts import ROOT

PAGE = (ROOT / "docs" / "replace_your_evaluator.md").read_text()
SECTIONS = {
    text.partition("\n")[0]: re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for text in PAGE.split("\n## ")
}


@functools.cache
def executed(seed):
    """The names of the page after each section that computes both ways, on the graph of a seed."""
    names, found = {}, {}
    for title, blocks in SECTIONS.items():
        for block in blocks:
            exec(block.replace("manual_seed(0)", f"manual_seed({seed})"), names)
        if any("after = " in block for block in blocks):
            found[title] = dict(names)
    return found


def ranks_of(of, row_of, known):
    """Tails, then heads, as (optimistic, pessimistic, num_candidates)."""
    return reference.Graph(known).lines(of["test"].tolist(), row_of, range(of["N"]))


def of_model(of, model):
    def row_of(side, query):
        scores = model[query[1], query[0]] if side == "tail" else model[query[0], :, query[1]]
        return scores.tolist()

    return row_of


def of_reciprocals(of, score):
    def row_of(side, query):
        entity, relation = query if side == "tail" else (query[1], query[0] + of["R"])
        return score(entity, relation).tolist()

    return row_of


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def mrr(ranks):
    return mean(1 / pessimistic for _, pessimistic, _ in ranks)


def rotate(of):
    ranks = ranks_of(of, of_model(of, of["model"]), of["triples"].tolist())
    return {"mrr": mrr(ranks), "hits_at_10": mean(high <= 10 for _, high, _ in ranks)}


def libkge(of):
    train, valid, test = (split.tolist() for split in of["splits"])
    found = {}
    for name, known in (
        ("raw", []),
        ("filtered", train + valid),
        ("filtered_with_test", train + valid + test),
    ):
        ranks = ranks_of(of, of_model(of, of["rounded"]), known)
        assert any(low < high for low, high, _ in ranks)
        found[name] = mean(1 / -(-(low + high) // 2) for low, high, _ in ranks)
    return found


def compgcn(of):
    row_of = of_reciprocals(of, lambda entity, relation: of["model"][relation, entity])
    ranks = ranks_of(of, row_of, of["triples"].tolist())
    return {"mr": mean(high for _, high, _ in ranks), "mrr": mrr(ranks)}


def kbc(of):
    def score(entity, relation):
        return of["right"] @ (of["left"][entity] * of["relation"][relation])

    ranks = ranks_of(of, of_reciprocals(of, score), of["triples"].tolist())
    half = len(ranks) // 2
    return {"tail_mrr": mrr(ranks[:half]), "head_mrr": mrr(ranks[half:])}


def ultra(of):
    ranks = ranks_of(of, of_model(of, of["model"]), of["triples"].tolist())
    hits = [scipy.stats.binom.cdf(9, 49, (high - 1) / (n - 1)) for _, high, n in ranks]
    return {"mrr": mrr(ranks), "hits_at_10_50": mean(hits)}


def betae(of):
    found = {"1p": [], "2i": []}
    for row, hard, easy, pattern in zip(
        of["logits"].tolist(), of["hard"], of["easy"], of["patterns"], strict=True
    ):
        ranks = [reference.rank(row, answer, (hard | easy) - {answer})[1] for answer in hard]
        found[pattern].append(mean(1 / rank for rank in ranks))
    return {pattern: mean(values) for pattern, values in found.items()}


def openea(of):
    ranks = [reference.rank(row, i)[1] for i, row in enumerate(of["similarity"].tolist())]
    return {
        "hits_at_1": mean(rank == 1 for rank in ranks),
        "mr": mean(ranks),
        "mrr": mean(1 / rank for rank in ranks),
    }


def simkgc(of):
    known = reference.Graph(of["triples"].tolist())
    ranks = []
    for (h, r, t), vector in zip(of["test"].tolist(), of["queries"], strict=True):
        row = (of["entities"] @ vector).tolist()
        ranks.append(reference.rank(row, t, known.answers("tail", (h, r)))[1])
    return {"mrr": mean(1 / rank for rank in ranks), "hits_at_3": mean(rank <= 3 for rank in ranks)}


BRUTE = {
    "RotatE": rotate,
    "LibKGE": libkge,
    "CompGCN": compgcn,
    "kbc": kbc,
    "ULTRA": ultra,
    "BetaE and Query2box": betae,
    "OpenEA": openea,
    "SimKGC": simkgc,
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("title", BRUTE)
def test_the_old_way_the_new_way_and_brute_force_agree(title, seed):
    of = executed(seed)[title]
    expected = BRUTE[title](of)
    assert of["before"] == pytest.approx(expected, rel=1e-12)
    assert of["after"] == pytest.approx(expected, rel=1e-12)


def test_every_section_that_replaces_an_evaluator_is_tested():
    assert set(executed(0)) == set(BRUTE)


def test_known_positives_matter_in_the_examples():
    values = executed(0)["LibKGE"]["after"]
    assert values["raw"] < values["filtered"] < values["filtered_with_test"]


def test_the_table_lists_as_many_projects_as_the_text_claims():
    rows = re.search(r"^\| task \| projects \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    projects = [part for row in rows[1].splitlines() for part in row.split("|")[2].split(", ")]
    number = len(projects) + projects.count("two examples of PyG ")
    assert f"the evaluators of {number} public projects" in PAGE
