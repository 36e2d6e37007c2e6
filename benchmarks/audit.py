"""Results of ``torchrankmetrics.audit`` for evaluators of other packages.

    pip install -c constraints.txt -e '.[audit]'
    python -m benchmarks.audit [--only NAME ...]

It writes results/audit.json, and its table results/audit.md.

Each evaluator is called as its package documents (the functions below). Packages that are not
installed are listed.

If a package has no filter, excluded candidates are removed before the call. If it takes rows of one
length only, rows of different lengths are passed one by one. PyG's KGEModel ranks all entities, so
its filter cases are skipped.
"""

import argparse
import datetime
import json
import platform
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchrankmetrics import __version__, rank_scores
from torchrankmetrics.audit import MAX_CANDIDATES, Report, audit

Evaluator = Callable[[Tensor, Tensor, Tensor | None], Any]


def candidates(
    scores: Tensor, target: Tensor, exclude: Tensor | None
) -> Iterator[tuple[Tensor, int]]:
    """Per task the scores (n,) of its candidates, and where among them the true one is."""
    for i, column in enumerate(target.tolist()):
        keep = torch.ones_like(scores[i], dtype=torch.bool) if exclude is None else ~exclude[i]
        keep[column] = True
        yield scores[i][keep], int(keep[:column].sum())


def negatives(
    scores: Tensor, target: Tensor, exclude: Tensor | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Scores of the targets (b,) and of the others (b, n).

    All rows come at once if they are of one length, else one by one.
    """
    if exclude is None:
        others = torch.ones_like(scores, dtype=torch.bool).scatter_(1, target[:, None], False)
        yield scores.gather(1, target[:, None])[:, 0], scores[others].view(len(target), -1)
        return
    for row, own in candidates(scores, target, exclude):
        yield row[own : own + 1], torch.cat([row[:own], row[own + 1 :]])[None]


def pykeen() -> Evaluator:
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.evaluation.evaluator import filter_scores_

    def evaluate(scores: Tensor, target: Tensor, exclude: Tensor | None) -> dict[str, float]:
        evaluator = RankBasedEvaluator(clear_on_finalize=True)
        true = scores.gather(1, target[:, None])
        if exclude is not None:  # as in Evaluator.evaluate: the true scores are put back
            scores = filter_scores_(scores.clone(), exclude.nonzero()).scatter_(
                1, target[:, None], true
            )
        triples = torch.stack([torch.arange(len(target)), torch.zeros_like(target), target], dim=1)
        evaluator.process_scores_(hrt_batch=triples, target="tail", scores=scores, true_scores=true)
        values = evaluator.finalize().to_flat_dict()
        names = (
            "arithmetic_mean_rank",
            "inverse_harmonic_mean_rank",
            "hits_at_1",
            "hits_at_3",
            "hits_at_10",
        )
        names += ("adjusted_arithmetic_mean_rank_index",)
        return {f"realistic.{name}": values[f"tail.realistic.{name}"] for name in names}

    return evaluate


def torchmetrics() -> Evaluator:
    from torchmetrics.retrieval import RetrievalHitRate, RetrievalMRR

    def evaluate(scores: Tensor, target: Tensor, exclude: Tensor | None) -> dict[str, Tensor]:
        rows = list(candidates(scores, target, exclude))
        preds = torch.cat([row for row, _ in rows])
        relevant = torch.cat([torch.arange(len(row)) == own for row, own in rows])
        indexes = torch.cat([torch.full((len(row),), i) for i, (row, _) in enumerate(rows)])
        metrics = {"mrr": RetrievalMRR()} | {
            f"hits@{k}": RetrievalHitRate(top_k=k) for k in (1, 3, 10)
        }
        return {name: metric(preds, relevant, indexes=indexes) for name, metric in metrics.items()}

    return evaluate


def pyg() -> Evaluator:
    from torch_geometric.nn.kge.base import KGEModel

    class Given(KGEModel):
        """A model whose score of (i, 0, j) is that of row i and column j."""

        def forward(self, head_index: Tensor, rel_type: Tensor, tail_index: Tensor) -> Tensor:
            return self.scores[head_index, tail_index]

    def evaluate(scores: Tensor, target: Tensor, exclude: Tensor | None) -> dict[str, float]:
        if exclude is not None:
            raise NotImplementedError("KGEModel.test has no filter")
        model = Given(scores.shape[1], 1, 1)
        model.scores = scores
        rows = torch.arange(len(target))
        values = model.test(
            rows, torch.zeros_like(rows), target, batch_size=scores.shape[1], k=10, log=False
        )
        return dict(zip(("mr", "mrr", "hits@10"), values, strict=True))

    return evaluate


def ogb() -> Evaluator:
    from ogb.linkproppred import Evaluator as OGBEvaluator

    evaluator = OGBEvaluator(name="ogbl-wikikg2")

    def evaluate(scores: Tensor, target: Tensor, exclude: Tensor | None) -> Tensor:
        batches = negatives(scores, target, exclude)
        lists = [
            evaluator.eval({"y_pred_pos": true, "y_pred_neg": others})["mrr_list"]
            for true, others in batches
        ]
        return 1 / torch.cat(lists)

    return evaluate


def tgb() -> Evaluator:
    from tgb.linkproppred.evaluate import Evaluator as TGBEvaluator

    evaluator = TGBEvaluator(name="tgbl-wiki")

    def evaluate(scores: Tensor, target: Tensor, exclude: Tensor | None) -> dict[str, float]:
        asked = ["mrr", "hits@"]
        values = [
            evaluator.eval({"y_pred_pos": true, "y_pred_neg": others, "eval_metric": asked})
            for true, others in negatives(scores, target, exclude)
        ]
        return {
            name: float(sum(value[name] for value in values)) / len(values)
            for name in ("mrr", "hits@10")
        }

    return evaluate


def torchkge() -> Evaluator:
    from torchkge.utils import filter_scores, get_rank

    def evaluate(scores: Tensor, target: Tensor, exclude: Tensor | None) -> Tensor:
        if exclude is not None:
            rows = torch.arange(len(target))
            answers = [
                {own, *row.nonzero().flatten().tolist()}
                for own, row in zip(target.tolist(), exclude, strict=True)
            ]
            known = {(i, 0): found for i, found in enumerate(answers)}
            scores = filter_scores(scores, known, rows, torch.zeros_like(rows), target)
        return get_rank(scores, target)

    return evaluate


def ranx() -> Evaluator:
    from ranx import Qrels, Run, evaluate as ranx_evaluate

    def evaluate(scores: Tensor, target: Tensor, exclude: Tensor | None) -> dict[str, float]:
        qrels, run = as_runs(scores, target, exclude)
        names = {
            "mrr": "mrr",
            "hit_rate@1": "hits@1",
            "hit_rate@3": "hits@3",
            "hit_rate@10": "hits@10",
        }
        values = ranx_evaluate(Qrels(qrels), Run(run), list(names))
        return {ours: float(values[theirs]) for theirs, ours in names.items()}

    return evaluate


def pytrec_eval() -> Evaluator:
    import pytrec_eval as package

    def evaluate(scores: Tensor, target: Tensor, exclude: Tensor | None) -> Tensor:
        qrels, run = as_runs(scores, target, exclude)
        values = package.RelevanceEvaluator(qrels, {"recip_rank"}).evaluate(run)
        return 1 / torch.tensor([values[query]["recip_rank"] for query in run], dtype=torch.float64)

    return evaluate


def ir_measures() -> Evaluator:
    import ir_measures as package

    def evaluate(scores: Tensor, target: Tensor, exclude: Tensor | None) -> Tensor:
        qrels, run = as_runs(scores, target, exclude)
        values = {
            value.query_id: value.value for value in package.iter_calc([package.RR], qrels, run)
        }
        return 1 / torch.tensor([values[query] for query in run], dtype=torch.float64)

    return evaluate


def as_runs(
    scores: Tensor, target: Tensor, exclude: Tensor | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The targets and the scores as dicts of dicts; queries and documents are numbered from 0."""
    qrels: dict[str, Any] = {}
    run: dict[str, Any] = {}
    for i, (row, own) in enumerate(candidates(scores, target, exclude)):
        qrels[str(i)] = {str(own): 1}
        run[str(i)] = {str(j): score for j, score in enumerate(row.double().tolist())}
    return qrels, run


def sentence_transformers() -> Evaluator:
    from sentence_transformers.evaluation import InformationRetrievalEvaluator

    def evaluate(scores: Tensor, target: Tensor, exclude: Tensor | None) -> dict[str, float]:
        qrels, run = as_runs(scores, target, exclude)
        N = scores.shape[1]
        evaluator = InformationRetrievalEvaluator(
            dict.fromkeys(run, ""),
            {str(j): "" for j in range(N)},
            {query: set(answers) for query, answers in qrels.items()},
            mrr_at_k=[N],
            accuracy_at_k=[1, 3, 10],
        )
        found = [
            [{"corpus_id": j, "score": score} for j, score in row.items()] for row in run.values()
        ]
        values = evaluator.compute_metrics(found)
        return {"mrr": values["mrr@k"][N]} | {
            f"hits@{k}": value for k, value in values["accuracy@k"].items()
        }

    return evaluate


def scikit_learn() -> Evaluator:
    from sklearn.metrics import coverage_error, label_ranking_average_precision_score

    def evaluate(scores: Tensor, target: Tensor, exclude: Tensor | None) -> dict[str, float]:
        values = []
        for true, others in negatives(scores, target, exclude):
            batch = torch.cat([true[:, None], others], dim=1).numpy()
            labels = torch.zeros(batch.shape, dtype=torch.int64)
            labels[:, 0] = 1
            pair = (
                coverage_error(labels, batch),
                label_ranking_average_precision_score(labels, batch),
            )
            values.append([len(batch) * float(value) for value in pair])
        mr, mrr = torch.tensor(values, dtype=torch.float64).sum(0) / len(target)
        return {"mr": mr, "mrr": mrr}

    return evaluate


# where every candidate is a Python object, or ranks come back as reciprocals in single precision
FEW = 100_000
# what it is called, its distribution, the function above, what is called there, and the most
# candidates it is given
PEERS: tuple[tuple[str, str, Callable[[], Evaluator], str, int | None], ...] = (
    ("PyKEEN", "pykeen", pykeen, "`RankBasedEvaluator`, realistic; `filter_scores_`", None),
    ("torchmetrics", "torchmetrics", torchmetrics, "`RetrievalMRR`, `RetrievalHitRate`", None),
    ("PyG", "torch_geometric", pyg, "`KGEModel.test`", None),
    ("OGB", "ogb", ogb, '`Evaluator("ogbl-wikikg2")`: `mrr_list`', FEW),
    ("TGB", "py-tgb", tgb, '`Evaluator("tgbl-wiki")`', None),
    ("TorchKGE", "torchkge", torchkge, "`get_rank`, `filter_scores`", None),
    ("ranx", "ranx", ranx, "`evaluate`: `mrr`, `hit_rate@k`", FEW),
    ("pytrec_eval", "pytrec_eval-terrier", pytrec_eval, "`RelevanceEvaluator`: `recip_rank`", FEW),
    ("ir_measures", "ir_measures", ir_measures, "`iter_calc`: `RR`", FEW),
    (
        "sentence-transformers",
        "sentence-transformers",
        sentence_transformers,
        "`InformationRetrievalEvaluator`",
        FEW,
    ),
    (
        "scikit-learn",
        "scikit-learn",
        scikit_learn,
        "`coverage_error`, `label_ranking_average_precision_score`",
        None,
    ),
)


RESULTS = Path(__file__).parent / "results" / "audit.json"
STATUSES = ("passed", "failed", "error", "skipped")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="these evaluators again, the others as they are"
    )
    given = parser.parse_args()
    RESULTS.write_text(json.dumps(results(given.only), indent=1) + "\n", encoding="utf-8")
    RESULTS.with_suffix(".md").write_text(tables(load()), encoding="utf-8")


def load() -> dict[str, Any]:
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def results(only: list[str] | None) -> dict[str, Any]:
    then = load() if only else {"rows": [], "left_out": []}
    before = {row["name"]: row for row in then["rows"]}
    rows: list[dict[str, Any]] = []
    missing = [gone for gone in then["left_out"] if gone["name"] not in (only or ())]
    for name, distribution, make, what, most in PEERS:
        if only and name not in only:
            rows += [before[name]] if name in before else []
            continue
        try:
            number = version(distribution)
            evaluator = make()
        except (PackageNotFoundError, ImportError) as error:
            missing.append({"name": name, "distribution": distribution, "why": str(error)})
            continue
        report = audit(evaluator, max_candidates=MAX_CANDIDATES if most is None else most)
        print(f"{name} {number}\n{report}\n", flush=True)
        rows.append(row_of(name, f"{distribution} {number}", what, report))
    if only is None or "torchrankmetrics" in only:
        ours = audit(
            lambda scores, target, exclude: rank_scores(scores, target, exclude=exclude).realistic
        )
        rows.append(
            row_of("torchrankmetrics", f"torchrankmetrics {__version__}", "`rank_scores`", ours)
        )
    elif "torchrankmetrics" in before:
        rows.append(before["torchrankmetrics"])
    machine = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    return {"machine": machine, "rows": rows, "left_out": missing}


def row_of(name: str, package: str, what: str, report: Report) -> dict[str, Any]:
    return {"name": name, "package": package, "asked": what} | report.to_dict()


def tables(results: dict[str, Any]) -> str:
    """Write a Markdown table: evaluators by the number of checks with each status."""
    about = ", ".join(f"{key} {value}" for key, value in results["machine"].items())
    lines = [f"Audited: {about}.", ""]
    lines += ["| evaluator | package | function | ties | passed | failed | error | skipped |"]
    lines += ["|---|---|---|---|--:|--:|--:|--:|"]
    for row in results["rows"]:
        counts = [sum(check["status"] == status for check in row["checks"]) for status in STATUSES]
        rule = " or ".join(row["ties"]) or "mixed"
        lines.append(
            f"| {row['name']} | {row['package']} | {row['asked']} | {rule} | " + _cells(counts)
        )
    missing = [
        f"Not audited: {gone['name']} ({gone['distribution']} is not installed)."
        for gone in results["left_out"]
    ]
    return "\n".join([*lines, "", *missing]) + "\n"


def _cells(cells: Any) -> str:
    return " | ".join(map(str, cells)) + " |"


if __name__ == "__main__":
    main()
