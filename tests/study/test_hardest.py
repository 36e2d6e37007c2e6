"""The worst and the best tasks: their ranks are those of the tables, their names those that were given."""

from pathlib import Path

import numpy as np
import pytest
import torch

from studies import study_of, table_of
from torchrankmetrics import KnownTriples, RankTable, rank_triples
from torchrankmetrics.study import RankStudy, verify

TRIPLES = [(f"head {i}", "of", f"<tail {i}>") for i in range(40)]
KINDS = ("optimistic", "pessimistic")


def test_tasks_are_ordered_by_the_ranks_of_all_models() -> None:
    found = study_of(datasets=("small",), seeds=2).tasks("small", 40)
    ranks = {
        model: np.mean([table_of(model, "small", seed).to_numpy()[kind] for seed in range(2) for kind in KINDS], axis=0)
        for model in "abc"
    }
    assert [len([row for row in found.rows if row.kind == kind]) for kind in ("worst", "best")] == [40, 40]
    for row in found.rows:
        assert row.ranks == {model: ranks[model][row.sample_id] for model in "abc"}
        assert (row.side, row.triple, row.answers) == ("tail", None, {})
    score = [sum(np.log(list(row.ranks.values()))) for row in found.rows]
    assert score[40:] == sorted(score[40:])
    assert score[:40] == pytest.approx(score[40:][::-1])


def test_names_come_from_a_file_an_array_or_a_sequence(tmp_path: Path) -> None:
    study = study_of(datasets=("small",))
    (tmp_path / "test.tsv").write_text("".join("\t".join(triple) + "\n" for triple in TRIPLES))
    ids = torch.arange(40)[:, None] * torch.tensor([1, 0, 1]) + torch.tensor([0, 7, 1])
    named = study.tasks("small", triples=TRIPLES)
    assert str(study.tasks("small", triples=tmp_path / "test.tsv")) == str(named)
    assert all(row.triple == TRIPLES[row.sample_id] for row in named.rows)
    numbered = study.tasks("small", triples=ids)
    assert [row.triple for row in numbered.rows] == [tuple(ids[row.sample_id].tolist()) for row in named.rows]
    rows = [tuple(row) for row in ids.numpy()]
    assert str(study.tasks("small", triples=rows)) == str(numbered)
    words = study.tasks("small", triples=ids, entities=[f"e{i}" for i in range(41)], relations={7: "r"})
    head, _, tail = ids[words.rows[0].sample_id].tolist()
    assert words.rows[0].triple == (f"e{head}", "r", f"e{tail}")


def test_what_a_model_answered_stands_beside() -> None:
    triples = torch.randint(0, 6, (20, 3), generator=torch.Generator().manual_seed(0)) % torch.tensor([6, 2, 6])
    triples = triples.unique(dim=0)
    names, relations = list("uvwxyz"), ["likes", "knows"]
    known, study = KnownTriples(triples, num_entities=6), RankStudy()
    scores = torch.rand(6, 2, 6, generator=torch.Generator().manual_seed(1))
    table = rank_triples(
        lambda h, r: scores[h, r], lambda r, t: scores[:, r, t].T, triples, known, progress=False, top_k=2
    )
    study.add(table, model="m", dataset="toy")
    for row in study.tasks("toy", 9, triples=triples, entities=names, relations=relations).rows:
        h, r, t = names.index(row.triple[0]), relations.index(row.triple[1]), names.index(row.triple[2])
        line = scores[h, r] if row.side == "tail" else scores[:, r, t]
        best = sorted(range(6), key=lambda i: -line[i])[:2]  # all triples are of one test set: none is filtered
        assert row.answers["m"] == tuple(names[i] for i in best)


@pytest.mark.parametrize(
    ("triples", "message"),
    [
        (TRIPLES[:3], r"triples lack one for the sample id \d+ of small; there are 3"),
        ([("a", "b")] * 40, r"must be of head, relation and tail, \(n, 3\)"),
    ],
)
def test_triples_that_do_not_fit_are_refused(triples: list[tuple[str, ...]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        study_of(datasets=("small",)).tasks("small", triples=triples)  # type: ignore[arg-type]


def test_a_page_lists_them_and_can_be_verified(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the page has figures")
    study = study_of("ab", datasets=("small",))
    study.save(tmp_path / "{dataset}" / "{model}.{seed}.npz")
    (tmp_path / "small.tsv").write_text("".join("\t".join(triple) + "\n" for triple in TRIPLES))
    study.report(tmp_path / "page.html", "mrr", tasks=3, triples=f"{tmp_path}/{{dataset}}.tsv")
    text = (tmp_path / "page.html").read_text()
    worst = study.tasks("small", 3, triples=TRIPLES).rows[0]
    assert f"&lt;tail {worst.sample_id}&gt;" in text
    assert verify(tmp_path / "page.html", tmp_path)
    path = tmp_path / "small" / "a.0.npz"
    arrays = RankTable.load(path).to_numpy()
    arrays["optimistic"] = np.where(arrays["sample_id"] == worst.sample_id, 1, arrays["optimistic"])
    RankTable.from_numpy(arrays).save(path)
    wrong = {one.where for one in verify(tmp_path / "page.html", tmp_path).differences}
    assert any(where.startswith("tables: tasks small") for where in wrong)
    with pytest.raises(ValueError, match="pass tasks="):
        study.report(triples={"small": TRIPLES})
