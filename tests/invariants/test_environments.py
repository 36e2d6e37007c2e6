"""Environments that users have: unusable Numba, another default device, several threads."""

import pytest

from scripts import ROOT, forked


def run(code, *modules, **environment):
    return forked("-c", code, cwd=ROOT, environment=environment, anew=["torchrankmetrics", *modules])


COUNT = """
import warnings
import torch
warnings.simplefilter("always")
from torchrankmetrics import rank_scores
for _ in range(2):
    ranks = rank_scores(torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([0]))
print(ranks.optimistic.item())
try:
    rank_scores(torch.eye(3), torch.arange(3), backend="numba")
except ImportError as error:
    print(error)
"""


@pytest.mark.slow
class TestUnusableNumba:
    @pytest.mark.parametrize(
        ("before", "environment", "why"),
        [
            ("", {"NUMBA_DISABLE_JIT": "1"}, "NUMBA_DISABLE_JIT"),
            # as it does beside a NumPy that is too new for it
            ("Numba needs NumPy 2.3 or less", {}, "Numba needs NumPy"),
        ],
    )
    def test_torch_counts_with_one_warning(self, tmp_path, before, environment, why):
        pytest.importorskip("numba")
        if before:
            (tmp_path / "numba").mkdir()
            (tmp_path / "numba" / "__init__.py").write_text(f"raise ImportError({before!r})")
            before = f"import sys; sys.path.insert(0, {str(tmp_path)!r})"
        result = run(before + COUNT, "numba", **environment)
        assert result.returncode == 0, result.stderr
        first, second = result.stdout.splitlines()
        assert first == "2"
        assert why in second
        assert result.stderr.count("RankMetricWarning") == 1
        assert why in result.stderr


# everything that creates tensors, called with tensors of the user on an explicit device
ELSEWHERE = """
import torch
torch.set_default_device("meta")
import torchrankmetrics as trm
on_cpu = lambda values: torch.tensor(values, device="cpu")
scores, target = on_cpu([[0.1, 0.9, 0.5], [0.3, 0.2, 0.1]]), on_cpu([1, 2])
pairs = on_cpu([[0, 1], [2, 0]])
collection = trm.RankCollection(["mrr", "z_mrr", "p_mr"])
for exclude in (None, pairs, trm.kg.KnownAnswers([0, 1], [2, 0])(on_cpu([0, 1])), scores > 0.8):
    collection.update(scores, target, exclude=exclude, group=[0, 1], weight=[1.0, 2.0])
print({key: round(value.item(), 3) for key, value in collection.compute().items()})
print({key: round(value.item(), 3) for key, value in collection(scores, target, group=0).items()})
collection.summary(), collection.breakdown(), collection.confidence_intervals(method="bootstrap"), collection.table()
print(trm.evaluate([], num_candidates=3, metrics=["count"]))
print(trm.compare(trm.Ranks([1, 2, 4], None, 9), trm.Ranks([2, 2, 1], None, 9), "mrr").difference)
print(trm.evaluate([1, 2, 5], num_candidates=9)["mr"], trm.evaluate([1.5], metrics=["median_rank"]))
dcg = trm.RankDefinition("dcg", f=lambda r: 1 / torch.log2(1 + r))
print(trm.RankMetric(dcg, view="z_score").moments([3, 4]).mean)
known = trm.KnownTriples([[0, 0, 1], [0, 0, 2]])
print(trm.rank_triples(lambda h, r: scores[h], None, [[0, 0, 1]], known).ranks)
print(trm.rank_embeddings(scores, scores, on_cpu([0, 1]), exclude=(on_cpu([0]), on_cpu([1]))).num_candidates.tolist())
print(trm.Ranks.from_negatives(scores[:, 0], scores[0]), trm.Ranks.from_negatives(scores[:, 0], list(scores)))
print(trm.kg.rank_complex_queries(lambda q: scores[q], [[0], [1, 2]], [[1], []]).ranks)
facts, own = [[0, 0, 1, 3]], lambda r, n: (n - r) / (n - 1)
print(trm.kg.rank_facts(lambda h, r, time: scores[h], None, facts, trm.kg.KnownFacts(facts)).ranks)
table = trm.rank_triples(None, None, [[0, 0, 1]], known, score_hrt=lambda hrt: hrt[:, 2].numpy().astype(float))
print(table.ranks)
mine = trm.RankDefinition("mine", f=trm.definitions.WithCandidates(own))
print(trm.evaluate(trm.Ranks([1, 3], None, 9), metrics=[mine]))
print(trm.kg.rank_alignment([[0, 0]], scores).num_tasks, trm.kg.relation_categories([[0, 0, 1]]).tolist())
"""


@pytest.mark.filterwarnings("ignore::torchrankmetrics.RankMetricWarning")
def test_another_default_device_changes_nothing(capsys):
    exec(ELSEWHERE.replace('torch.set_default_device("meta")', ""), {})
    usual = capsys.readouterr().out
    elsewhere = run(ELSEWHERE)
    assert elsewhere.returncode == 0, elsewhere.stderr
    assert elsewhere.stdout == usual
