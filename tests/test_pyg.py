"""The PyG example: its numbers against KGEModel.test() and brute force, and the difference that it explains."""

import re

import pytest
import torch
from torch_geometric.nn.kge import ComplEx, DistMult, TransE

from reference_ranks import lines
from scripts import EXAMPLES, load_script, run_script
from torchrankmetrics import KnownTriples, evaluate

EXAMPLE = EXAMPLES / "pyg_kge.py"


@pytest.fixture(scope="module")
def example():
    return load_script(EXAMPLE)


@pytest.fixture(scope="module")
def triples():
    generator = torch.Generator().manual_seed(0)
    columns = [torch.randint(size, (60,), generator=generator) for size in (9, 2, 9)]
    return torch.unique(torch.stack(columns, 1), dim=0)


@pytest.mark.parametrize("kind", [ComplEx, DistMult, TransE])
def test_raw_tails_are_what_the_model_tests_but_from_one(example, triples, kind):
    torch.manual_seed(1)
    model = kind(9, 2, hidden_channels=8)
    mean_rank, mrr, hits = model.test(*triples.T, batch_size=100, k=3, log=False)
    table = example.rank(model, triples, None).select(side="tail")
    assert evaluate(table, metrics=["tie_rate"])["tie_rate"] == 0
    values = evaluate(table, metrics=["mr", "mrr", "hits@3"])
    assert list(values.values()) == pytest.approx([mean_rank + 1, mrr, hits], rel=1e-6)


def test_both_sides_filtered_by_brute_force(example, triples):
    torch.manual_seed(1)
    model = DistMult(9, 2, hidden_channels=8)
    model.node_emb.weight.data = model.node_emb.weight.data.sign()  # ties
    model.rel_emb.weight.data = model.rel_emb.weight.data.sign()
    table = example.rank(model, triples, KnownTriples(triples))
    true = {tuple(x) for x in triples.tolist()}
    expected = []
    with torch.no_grad():
        for side in ("tail", "head"):
            for h, r, t in triples.tolist():
                own = t if side == "tail" else h
                put = (lambda e, h=h, r=r: (h, r, e)) if side == "tail" else (lambda e, r=r, t=t: (e, r, t))
                score = {e: model(*torch.tensor([put(e)]).T).item() for e in range(9)}
                others = [score[e] for e in range(9) if e != own and put(e) not in true]
                better = sum(s > score[own] for s in others)
                expected.append((better + 1, better + 1 + sum(s == score[own] for s in others), 1 + len(others)))
    assert lines(table.ranks) == expected
    assert any(low < high for low, high, _ in expected)


def test_example_explains_the_difference(tmp_path):
    printed = run_script(EXAMPLE, "--dataset", "nations", "--epochs", "2", cwd=tmp_path)
    rows = re.findall(r"^(.{44})((?: +[\d.-]+)+)$", printed, flags=re.MULTILINE)
    rows = {label.strip(): [float(x) for x in values.split() if x != "-"] for label, values in rows}
    assert len(rows) == 5
    theirs, raw, tails, heads, both = rows.values()
    assert raw[:3] == pytest.approx([theirs[0] + 1, *theirs[1:]], abs=2e-4)
    assert tails[0] < raw[0]
    assert both[:3] == pytest.approx([(a + b) / 2 for a, b in zip(tails, heads, strict=True)][:3], abs=2e-4)
    nothing = re.findall(r"model.test\(\) +([\d.]+) +realistic +([\d.]+) of 14", printed)
    assert [realistic for _, realistic in nothing] == ["7.5", "7.5"]
    assert nothing[0][0] != nothing[1][0]
