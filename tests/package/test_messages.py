"""Messages for common mistakes: a call in, the message out.

No message points to a file that is not installed.
"""

import ast
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import tensor
from torchmetrics import MetricCollection, retrieval

from scripts import ROOT, forked
from torchrankmetrics import (
    HitsAtK,
    KnownTriples,
    NormalizedDCG,
    RankCollection,
    Ranks,
    RankTable,
    adjust,
    compare,
    evaluate,
    rank_scores,
    rank_triples,
)
from torchrankmetrics.errors import RankMetricWarning
from torchrankmetrics.integrations.trec import evaluate_run

SCORES = torch.arange(6.0).reshape(2, 3)
ROW = tensor([0, 1])
IDS = torch.ones(4, 2, dtype=torch.int64)
KNOWN = KnownTriples([[0, 0, 5]])


def three_columns(heads, relations):
    return torch.zeros(len(heads), 3)


def with_one_task() -> RankTable:
    return RankTable.from_ranks(Ranks([1], None, 5))


MESSAGES = {
    "integers of two dimensions": (
        lambda: rank_scores(torch.rand(4, 4), IDS),
        "target must not be integers with two dimensions, got torch.int64 (4, 2) for scores "
        "(4, 4): pass target.tolist() if these are the columns of every row, tuple(target.T) if "
        "every row is a pair (row, column)",
    ),
    "pairs in two rows": (
        lambda: rank_scores(torch.rand(4, 4), IDS.T),
        "tuple(target) if these are rows and columns, (2, P)",
    ),
    "integers as labels": (
        lambda: rank_scores(SCORES, torch.ones(2, 3, dtype=torch.int64)),
        "target.bool() or target.float() if these are labels",
    ),
    "ids from 1 on": (
        lambda: rank_scores(SCORES, tensor([1, 3])),
        "target must lie in [0, 3), the columns of scores (2, 3), but target[1] is 3; columns "
        "count from 0: subtract 1 if your ids start at 1",
    ),
    "padding by -1": (
        lambda: rank_scores(SCORES, tensor([1, -1])),
        "target[1] is -1; drop padded rows before: keep = target >= 0, scores[keep], target[keep]",
    ),
    "padding by -100": (
        lambda: RankCollection(["mrr"]).update(SCORES, tensor([-100, 1])),
        "target[0] is -100; drop padded rows before",
    ),
    "padding by -1 in lists": (
        lambda: rank_scores(SCORES, [[0], [-1]]),
        "but target has column -1 in row 1; drop padding before: for lists pass [[i for i in row "
        "if i >= 0] for row in target]",
    ),
    "repeated padding in lists": (
        lambda: rank_scores(SCORES, [[0], [1, -1, -1]]),
        "but target has column -1 in row 1; drop padding before",
    ),
    "ids of a vector index as scores": (
        lambda: evaluate(torch.full((2, 3), 77), tensor([366, 8]), ["rr"]),
        "target[0] is 366; ids of retrieved items go in through ranking.ranks_of_lists",
    ),
    "column of a list": (
        lambda: rank_scores(SCORES, [[0], [1, 3]]),
        "but target has column 3 in row 1; columns count from 0",
    ),
    "row of a pair": (
        lambda: rank_scores(SCORES, (tensor([2]), tensor([0]))),
        "target of task 0 is in row 2, but scores have the rows 0 to 1",
    ),
    "transposed scores": (
        lambda: rank_scores(SCORES.T, ROW),
        "target must be (3,), one column per row of scores (3, 2); got (2,). Are scores "
        "transposed? They are (queries, candidates)",
    ),
    "floating columns": (
        lambda: rank_scores(SCORES, tensor([0.0, 1.0])),
        "target must contain integers, got torch.float32: pass target.long(), or labels of the "
        "shape of scores, (2, 3)",
    ),
    "one query": (
        lambda: rank_scores(SCORES[0], tensor([0])),
        "got (3,); for one query pass scores[None] and a target of one entry",
    ),
    "scores of one query as ranks": (
        lambda: evaluate([0.1, 0.2], 5),
        "got 0.1. The scores of one query go in as evaluate(scores[None], [target], metrics=...)",
    ),
    "scores and labels of one query": (
        lambda: evaluate([0.1, 0.2], [1, 0], ["ndcg@10"]),
        "got 0.1. The scores of one query go in as evaluate(scores[None], [target], metrics=...), "
        "with labels (N,) as target[None].float()",
    ),
    "ranks from 0 on": (
        lambda: evaluate([3, 0], 5),
        "ranks must start at 1, but task 1 has rank 0; add 1 if yours start at 0",
    ),
    "metrics in second place": (
        lambda: evaluate([1, 2, 3], ["mrr"]),
        "num_candidates must be (tasks,) integers or one int, got ['mrr']; write metrics=['mrr'] "
        "for metrics",
    ),
    "two metrics in one text": (
        lambda: evaluate([1], 5, metrics="mrr,hits@10"),
        "'mrr,hits@10' looks like several metrics: pass ['mrr', 'hits@10']",
    ),
    "text as ids": (
        lambda: KnownTriples([["a", "r", "b"]]),
        "triples[0] must contain numbers, got text such as 'a'; number the names first, for "
        "example by pandas.factorize(names)[0]",
    ),
    "text as sample ids": (
        lambda: RankTable.from_ranks(Ranks([1, 2], None, 5), sample_id=["x", "y"]),
        "sample_id must contain numbers, got text such as 'x'",
    ),
    "known triples as exclude": (
        lambda: rank_scores(SCORES, ROW, exclude=KNOWN),
        "got KnownTriples: pass its known.tails(heads, relations) or known.heads(relations, tails)",
    ),
    "floating mask": (
        lambda: rank_scores(SCORES, ROW, exclude=torch.eye(2, 3)),
        "pass exclude.bool() if 1 marks a candidate that is excluded, and exclude == 0 if 1 marks "
        "a candidate that is ranked",
    ),
    "no known triples": (
        lambda: rank_triples(three_columns, None, [[0, 0, 1]]),
        "rank_triples() missing a required argument: 'known'; pass KnownTriples(train, valid, "
        "test) for filtered ranks, or None for raw ranks",
    ),
    "too few columns": (
        lambda: rank_triples(three_columns, None, [[0, 0, 5]], KNOWN, progress=False),
        "score_tails must score all entities, but it returned 3 columns, and the largest target is "
        "entity 5",
    ),
    "paths to compare": (
        lambda: compare("a.npz", "b.npz"),
        "a must be ranks, got a path: pass RankTable.load('a.npz'), or if it is a run "
        "rank_run(qrels, 'a.npz') of integrations.trec",
    ),
    "values of queries as an array": (
        lambda: compare(np.array([0.5, 0.25]), np.array([0.25, 0.5]), "ndcg@10"),
        "a must be integers, got torch.float64; for ties pass Ranks(optimistic, pessimistic). "
        "For values of queries pass {query: value}, such as series.to_dict() of pandas",
    ),
    "averages to compare": (
        lambda: compare([0.3, 0.2], [0.4, 0.1]),
        "a must be ranks of tasks, or one value per query as {query: value}, got 0.3. Two averages "
        "cannot be compared",
    ),
    "number of candidates in second place": (
        lambda: Ranks([1, 2], 14),
        "pessimistic must be (tasks,) integers, the second argument; for the number of candidates "
        "write Ranks([1, 2], num_candidates=14)",
    ),
    "metric of torchmetrics": (
        lambda: RankCollection(retrieval.RetrievalMRR()),
        "got RetrievalMRR: its name here is 'rr'; or put it next to a RankCollection into a "
        "torchmetrics.MetricCollection",
    ),
    "metric of torchmetrics in a list": (
        lambda: evaluate([1], 5, metrics=[retrieval.RetrievalNormalizedDCG(top_k=10)]),
        "got RetrievalNormalizedDCG: its name here is 'ndcg_at_10'",
    ),
    "no place": (lambda: HitsAtK(0), "k must be an int of at least 1, got 0"),
    "no place in a name": (
        lambda: RankCollection(["hits@0"]),
        "k must be an int of at least 1, got 0",
    ),
    "too many places": (lambda: HitsAtK(1 << 70), f"at least 1 and below 2^63, got {1 << 70}"),
    "dataset, metric, value": (
        lambda: adjust("FB15k-237", "mrr", 0.355),
        "adjust takes the value, the metric and the dataset in this order: write adjust(0.355, "
        "'mrr', 'FB15k-237')",
    ),
    "metric, value, dataset": (
        lambda: adjust("mrr", "0.355", "FB15k-237"),
        "write adjust('0.355', 'mrr', 'FB15k-237')",
    ),
    "metric, value, count": (
        lambda: adjust("mrr", 0.355, 14541),
        "adjust takes the value, the metric and the numbers of candidates in this order, such as "
        "adjust(0.355, 'mrr', 14541), got adjust('mrr', 0.355, 14541)",
    ),
    "value, count, metric": (
        lambda: adjust(0.355, [9, 9], "mrr"),
        "got adjust(0.355, [9, 9], 'mrr')",
    ),
    "torchmetrics' top_k of a collection": (
        lambda: RankCollection(["ndcg"], top_k=10),
        "top_k must be a part of the name: pass 'ndcg@10', or k=10 to a class",
    ),
    "torchmetrics' top_k of a class": (
        lambda: NormalizedDCG(top_k=10),
        "top_k must be a part of the name: pass 'ndcg@10', or k=10 to a class",
    ),
    "text as target": (
        lambda: evaluate(np.eye(2), ["Rome", "Paris"], metrics=["mrr"]),  # type: ignore[list-item]
        "the second argument must be integers (numbers of candidates, or targets of scores), got "
        "['Rome', 'Paris']; number names first, for example by pandas.factorize",
    ),
    "run without a collection": (
        lambda: evaluate_run({"q": {"d": 1}}, {"q": {"d": 1.0}}, ["adjusted_rr"]),
        "adjusted_rr: num_candidates is needed for every view except 'base'",
    ),
    "interval of one task": (
        lambda: with_one_task().confidence_intervals(["mrr"]),
        "an interval or a standard error needs at least 2 independent tasks or clusters, got 1",
    ),
}


@pytest.mark.parametrize(("call", "message"), MESSAGES.values(), ids=MESSAGES)
def test_a_mistake_has_a_message_with_its_remedy(call, message) -> None:
    with pytest.raises((TypeError, ValueError, IndexError)) as raised:
        call()
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "q1 0 d1 1\n",
            "looks like qrels of TREC: give qrels and run together, to rank_run(qrels, run)",
        ),
        ("q1 Q0 d1 1 0.5 bm25\n", "looks like a run of TREC"),
    ],
)
def test_a_file_of_trec_is_recognized(text, message, tmp_path) -> None:
    (tmp_path / "file.npz").write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)):
        RankTable.load(tmp_path / "file.npz")


def test_a_csv_file_without_ranks_names_the_column_to_rename(tmp_path) -> None:
    (tmp_path / "w.csv").write_text("id,ranks\n1,3\n")
    with pytest.raises(ValueError, match="got id, ranks; rename 'ranks' to 'rank'"):
        RankTable.load(tmp_path / "w.csv")


def test_nan_scores_are_reported_with_consequence_and_remedy() -> None:
    scores = tensor([[torch.nan, 1.0]])
    with pytest.warns(RankMetricWarning) as caught:
        evaluate(scores, [0], metrics=["mrr"])
    assert str(caught[0].message) == (
        "1 of 1 ranking tasks have NaN scores, which count against the model: a NaN target ranks "
        "last, a NaN candidate above the target. So values may be too low. Check the model: "
        "torch.isnan(scores).any(). With similarity='cosine' a zero vector (norm 0) is the "
        "usual cause"
    )


def test_a_plot_names_a_metric_by_its_key() -> None:
    pytest.importorskip("matplotlib")
    metrics = MetricCollection({"first": HitsAtK(1), "ten": HitsAtK(10)})
    metrics.update(SCORES, ROW)
    titles = [ax.get_title() or ax.get_ylabel() for _, ax in metrics.plot()]
    shown = str([[text.get_text() for text in ax.texts] for _, ax in metrics.plot()]) + str(titles)
    assert "hits_at_1" in shown
    assert "hits_at_10" in shown
    assert "HitsAtK" not in shown


@pytest.mark.parametrize(
    ("package", "statement", "message"),
    [
        ("pykeen", "import torchrankmetrics.integrations.pykeen", "[pykeen]"),
        ("pytorch_lightning", "import torchrankmetrics.integrations.early_stopping", "[lightning]"),
        ("pandas", "trm.RankTable.from_ranks(trm.Ranks([1])).to_pandas()", "[pandas]"),
        (
            "pandas",
            "trm.RankTable.from_ranks(trm.Ranks([1], None, 5)).summary().to_pandas()",
            "[pandas]",
        ),
        (
            "pyarrow",
            "trm.RankTable.from_ranks(trm.Ranks([1])).to_parquet('a.parquet')",
            "[parquet]",
        ),
    ],
)
def test_a_missing_package_names_its_extra(package, statement, message) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\nimport torchrankmetrics as trm\n{statement}"
    )
    errors = forked("-c", code, cwd=ROOT, anew=["torchrankmetrics"]).stderr
    last = errors.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert f"pip install 'torchrankmetrics{message}'" in last
    extras = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2]
    assert f"\n{message.strip('[]')} = [" in extras


def strings_of_messages(path: Path) -> list[str]:
    """All strings of a module except docstrings."""
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docs = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return [one.value for one in constants if isinstance(one.value, str) and one not in docs]


def test_no_message_points_to_a_file_that_is_not_installed() -> None:
    found = {}
    for path in (ROOT / "src").rglob("*.py"):
        texts = strings_of_messages(path)
        wrong = [
            text
            for text in texts
            if re.search(r"\b(docs|examples|benchmarks)/\w+\.\w+|README", text)
        ]
        if wrong:
            found[path.name] = wrong
    assert not found
