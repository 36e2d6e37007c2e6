"""The benchmark of a foundation model: its results, its reading of tables, and how it calls the model."""

import json
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from scripts import ROOT, forked
from torchrankmetrics import KnownTriples, Ranks, RankTable, evaluate
from torchrankmetrics.datasets import candidate_counts, dataset_names
from torchrankmetrics.definitions import MEAN_RECIPROCAL_RANK, hits_at
from torchrankmetrics.null import ExactExpectation

pytest.importorskip("numba", reason="the benchmark sums with it: pip install 'torchrankmetrics[fast]'")
from benchmarks import foundation

RESULTS = ROOT / "benchmarks" / "results"
ROWS = json.loads((RESULTS / "foundation.json").read_text())
ACROSS = json.loads((RESULTS / "foundation_across.json").read_text())
GRAPHS = {row["graph"]: row for row in json.loads((RESULTS / "foundation_graphs.json").read_text())}


# --- what is committed ------------------------------------------------------------------------------------------------


def test_every_graph_has_all_checkpoints_and_known_candidate_counts() -> None:
    """The counts that are shipped, made from the triples, are those of the tables, made by a model's run."""
    assert {(row["graph"], row["checkpoint"]) for row in ROWS} == {(g, c) for g in GRAPHS for c in ("3g", "4g", "50g")}
    for row in ROWS:
        counts = candidate_counts(foundation.graph_names()[row["graph"]])
        assert counts.num_tasks == row["tasks"]
        assert counts.num_candidates[-1] == row["max_candidates"]
        mean = Fraction(int((counts.num_candidates * counts.count).sum()), counts.num_tasks)
        assert row["mean_candidates"] == pytest.approx(float(mean), rel=1e-12)
        for definition in (MEAN_RECIPROCAL_RANK, hits_at(10)):
            chance = ExactExpectation().moments(definition, counts).mean
            assert row[f"chance_{definition.name}"] == pytest.approx(chance, rel=1e-12)
            index = (row[definition.name] - chance) / (1 - chance)
            assert row[f"adjusted_{definition.name}"] == pytest.approx(index, abs=1e-12)


@pytest.mark.parametrize("metric", foundation.AVERAGED)
def test_averages_over_graphs_are_those_of_the_rows(metric: str) -> None:
    for row in ACROSS["rows"]:
        if row["metric"] == metric:
            mine = [one[metric] for one in ROWS if one["checkpoint"] == row["checkpoint"]]
            assert row["mean"] == pytest.approx(np.mean(mine), rel=1e-12)
            half = 2.03451530 * np.std(mine, ddof=1) / np.sqrt(34)  # Student's t, 33 degrees of freedom, 97.5 %
            assert (row["low"], row["high"]) == pytest.approx((row["mean"] - half, row["mean"] + half), rel=1e-6)


def test_differences_are_those_of_the_rows() -> None:
    by = {(row["graph"], row["checkpoint"]): row for row in ROWS}
    assert len(ACROSS["differences"]) == 6
    for found in ACROSS["differences"]:
        a, b = found["of"].split(" - ")
        for graph, (value, low, high, _) in found["by_graph"].items():
            expected = by[graph, a][found["metric"]] - by[graph, b][found["metric"]]
            assert value == pytest.approx(expected, abs=1e-12)
            assert low <= value <= high


def test_every_name_is_one_of_ours() -> None:
    names = foundation.graph_names()
    assert {*names.values()} <= {*dataset_names()}
    assert names["FB-v1"] == "fb15k237-v1-ind-merged"
    assert names["ingram-NL-0"] == "ingram-nl-0"
    assert names["codex-s"] == "codex-s"
    assert len({*names.values()}) == len(names)


# --- reading tables ---------------------------------------------------------------------------------------------------


def test_a_folder_of_tables_becomes_an_object_per_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, written = np.random.default_rng(0), {}
    ids = torch.arange(30)
    for graph, size in (("small", 12), ("large-1", 400)):
        for checkpoint in ("3g", "4g", "50g"):
            sides = []
            for side in ("tail", "head"):
                rank = torch.from_numpy(rng.integers(1, size + 1, 30))
                sides.append(RankTable.from_ranks(Ranks(rank, rank, size), side=side, sample_id=ids))
            written[graph, checkpoint] = RankTable.concatenate(sides)
            written[graph, checkpoint].save(tmp_path / f"{graph}.{checkpoint}.npz")
    path = tmp_path / "out.json"
    monkeypatch.setattr(sys, "argv", ["foundation", "--tables", str(tmp_path), "--json", str(path)])
    foundation.main()
    rows = {(row["graph"], row["checkpoint"]): row for row in json.loads(path.read_text())}
    assert set(rows) == set(written)
    for key, table in written.items():
        rank = table.ranks.pessimistic.double()
        assert rows[key]["tasks"] == 60
        assert rows[key]["mrr"] == pytest.approx((1 / rank).mean().item(), rel=1e-12)
        assert rows[key]["hits_at_10"] == pytest.approx((rank <= 10).double().mean().item())
        size = rows[key]["max_candidates"]
        assert rows[key]["amri"] == pytest.approx(1 - (rank.mean().item() - 1) / ((size + 1) / 2 - 1), rel=1e-12)
        assert rows[key]["tail_mrr"] == pytest.approx((1 / rank[:30]).mean().item(), rel=1e-12)
    across = json.loads((tmp_path / "out_across.json").read_text())
    assert across["graphs"] == 2
    assert {row["of"] for row in across["differences"]} == {"4g - 3g", "50g - 3g", "50g - 4g"}
    assert "| small | 60 | 12 |" in foundation.report([*rows.values()])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--tables must be given"),
        (["--ultra", "u"], "--graphs and --tables must be given"),
        (["--noise", "NL-v1", "--graphs", "g"], "--ultra must be given"),
        (["--tables", "t", "--only", "fb15k"], "invalid choice: 'fb15k'"),
    ],
)
def test_options_that_say_too_little_are_refused(
    options: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["foundation", *options])
    with pytest.raises(SystemExit):
        foundation.main()
    assert message in capsys.readouterr().err


def test_a_graph_without_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    splits = {
        "train": [("a", "r", "x"), ("b", "r", "x"), ("a", "s", "b"), ("c", "s", "b"), ("c", "s", "a")],
        "test": [("c", "r", "x"), ("b", "s", "a")],
    }
    elsewhere = {"train": [("c", "r", "x")], "test": [("b", "s", "a")]}
    labelled = {"g": {"vocabulary": [("z", "q", "z")], **splits}}
    for module in (foundation,):
        monkeypatch.setattr(module, "labels_of", lambda name, _: dict(labelled.get(name, elsewhere)))
        monkeypatch.setattr(module, "graph_names", lambda: {"g": "ours"})
    foundation.training_facts.cache_clear()
    facts = foundation.facts("g", Path())
    foundation.training_facts.cache_clear()
    assert (facts["dataset"], facts["entities"], facts["test_relations"]) == ("ours", 4, 2)
    assert (facts["constant_tails"], facts["constant_tail_tasks"]) == (1, 0.5)  # of r
    assert facts["seen"] == {"3g": 0.5, "4g": 1.0}  # of NELL-995 all splits are taken
    # counts of (s, tail): b 2, a 1, the others 0; of (r, tail): x 2. Of (r, head): a 1, b 1; of (s, head): c 2, a 1.
    # tails: x among x, a, b, c: rank 1; (b, s): a behind b, among 4: rank 2.
    # heads: (r, x): a and b are known, c and x are level: 1.5; (s, a): c is known, b is behind a, level with x: 2.5.
    assert facts["frequency"]["mrr"] == pytest.approx(np.mean([1, 1 / 2, 1 / 1.5, 1 / 2.5]))


# --- calling the model ------------------------------------------------------------------------------------------------


def test_messages_are_summed_in_order() -> None:
    rng = np.random.default_rng(1)
    edges, types = torch.from_numpy(rng.integers(0, 5, (2, 40))), torch.from_numpy(rng.integers(0, 3, 40))
    weight, relation, nodes = (torch.from_numpy(rng.normal(size=s).astype("float32")) for s in (40, (3, 4), (5, 4)))
    expected = torch.zeros(5, 4, dtype=torch.float64)
    for e in range(40):
        expected[edges[0, e]] += weight[e].double() * relation[types[e]].double() * nodes[edges[1, e]].double()
    got = foundation.sum_of_messages(edges, types, weight, relation, nodes)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(NotImplementedError, match="'max'"):
        foundation.sum_of_messages(edges, types, weight, relation, nodes, sum="max")


MODELS = """
import torch
from torch_scatter import scatter_add
from .rspmm import generalized_rspmm

asked = []

class Ultra(torch.nn.Module):
    def __init__(self, relation, entity):
        super().__init__()
        assert (relation["class"], entity["class"]) == ("RelNBFNet", "EntityNBFNet")
        self.shift = torch.nn.Parameter(torch.zeros(()))
    def relation_model(self, graph, query):
        assert graph == "relations" and query.shape == (1,)
        asked.append(query.item())
        return torch.full((1, 4, 2), float(query))
    def entity_model(self, data, given, batch):
        assert data.edge_index.shape == (2, 8) and data.edge_type.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
        assert (given[:, 0, 0].long() == batch[:, 0, 2]).all()
        h, t, r = batch.unbind(-1)
        return torch.sin(7.0 * h + 3.0 * t + r + 0.001 * h * t) + self.shift
"""
TASKS = "def build_relation_graph(data):\n    data.relation_graph = 'relations'\n    return data\n"
DATA = "from types import SimpleNamespace as Data\n"
CALL = """
import sys, torch
from pathlib import Path
from benchmarks.foundation import Graph, rank
train = torch.tensor([[0, 0, 1], [1, 0, 2], [2, 1, 3], [3, 1, 4]])
test = torch.tensor([[0, 0, 3], [0, 0, 4], [2, 1, 0]])
graph = Graph({"train": train, "test": test}, 5, 2)
rank(Path("checkout"), "3g", graph).save("exact.npz")
rank(Path("checkout"), "3g", graph, digits=0).save("rounded.npz")
from ultra import models
assert sorted(models.asked) == [0, 0, 1, 1]  # once in each run
assert "torch_scatter" in sys.modules
try:
    rank(Path("nowhere"), "3g", graph)
except FileNotFoundError as error:
    print(error)
"""


def test_the_checkout_is_asked_for_all_entities_of_both_sides(tmp_path: Path) -> None:
    """A stand-in for the repository, with a closed form for the score of (head, relation, tail)."""
    package = tmp_path / "checkout" / "ultra"
    for folder in (package, tmp_path / "torch_geometric", tmp_path / "checkout" / "ckpts"):
        folder.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "models.py").write_text(MODELS)
    (package / "tasks.py").write_text(TASKS)
    (tmp_path / "torch_geometric" / "__init__.py").touch()
    (tmp_path / "torch_geometric" / "data.py").write_text(DATA)
    torch.save({"model": {"shift": torch.tensor(5.0)}}, tmp_path / "checkout" / "ckpts" / "ultra_3g.pth")
    command = f"import sys; sys.path[:0] = [{str(ROOT)!r}, '.']\n{CALL}"
    done = forked("-c", command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "nowhere is no checkout of ULTRA: it has no ultra/models.py"

    train = {(0, 0, 1), (1, 0, 2), (2, 1, 3), (3, 1, 4)}
    test = [(0, 0, 3), (0, 0, 4), (2, 1, 0)]
    known = train | {*test}
    for name, rounded in (("exact", False), ("rounded", True)):
        table = RankTable.load(tmp_path / f"{name}.npz")

        def score(h: int, r: int, t: int, rounded: bool = rounded) -> float:
            value = np.sin(7 * h + 3 * t + r + 0.001 * h * t) + 5
            return round(value) if rounded else value

        expected = []
        for side in ("tail", "head"):
            for h, r, t in test:
                others = [(h, r, e) if side == "tail" else (e, r, t) for e in range(5)]
                kept = [score(*one) for one in others if one not in known]
                own = score(h, r, t)
                expected.append((1 + sum(s > own for s in kept), 1 + sum(s >= own for s in kept), 1 + len(kept)))
        ranks = table.ranks
        got = zip(ranks.optimistic.tolist(), ranks.pessimistic.tolist(), ranks.num_candidates.tolist(), strict=True)
        assert [*got] == expected
    assert evaluate(table, metrics=["tie_rate"])["tie_rate"] > 0


def test_renumbering_keeps_the_graph() -> None:
    train, test = torch.tensor([[0, 0, 1], [1, 1, 2], [3, 0, 2]]), torch.tensor([[0, 0, 2]])
    graph = foundation.Graph({"train": train, "test": test}, 4, 2)
    other = graph.renumbered(3)
    assert (other.num_entities, other.num_relations) == (4, 2)
    ends = [x[:, ::2].flatten().tolist() for x in (train, other.splits["train"])]
    order = dict(zip(*ends, strict=True))
    assert sorted(order.values()) == [0, 1, 2, 3]
    assert order != {i: i for i in range(4)}
    assert [order[i] for i in (0, 2)] == other.splits["test"][0, ::2].tolist()
    for side in ("head", "tail"):
        counts = [KnownTriples(*g.splits.values()).num_candidates(g.splits["test"], side) for g in (graph, other)]
        assert counts[0].tolist() == counts[1].tolist()
