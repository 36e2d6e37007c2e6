"""Train with PyKEEN and evaluate with this package: early stopping, callback, test, search.

    python examples/pykeen_pipeline.py [--dataset kinships|nations|umls]

The evaluator replaces PyKEEN's own: results have PyKEEN's keys, and the ranks are stored in a
collection for intervals and comparisons. PyKEEN filters validation by train + valid and the test by
all splits.
"""

import argparse
import logging

import torch
from pykeen.datasets import get_dataset
from pykeen.hpo import hpo_pipeline
from pykeen.pipeline import pipeline
from pykeen.trackers import PythonResultTracker

from torchrankmetrics import RankCollection, evaluate
from torchrankmetrics.integrations.pykeen import RankCollectionEvaluator, early_stopping, objective

METRICS = ["mrr", "mr", "hits@10"]


def main() -> RankCollection:
    """Train with early stopping, print the test results, then search for a learning rate."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", choices=("kinships", "nations", "umls"), default="kinships")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument(
        "--trials", type=int, default=2, help="of the hyper-parameter search; 0 skips it"
    )
    args = parser.parse_args()

    torch.set_num_threads(1)  # matrices this small lose more to threads than they gain
    logging.disable(logging.WARNING)
    dataset = get_dataset(dataset=args.dataset)
    evaluator = RankCollectionEvaluator()
    tracker = PythonResultTracker()
    common = {
        "dataset": dataset,
        "model": "complex",
        "model_kwargs": {"embedding_dim": 64},
        "training_loop": "lcwa",
        "optimizer": "adam",
        "device": "cpu",
        "evaluation_kwargs": {"use_tqdm": False, "batch_size": 256},
    }
    result = pipeline(
        **common,
        optimizer_kwargs={"lr": 0.05},
        training_kwargs={
            "num_epochs": args.epochs,
            "use_tqdm": False,
            # every few epochs what the model makes of its own training triples, beside the
            # validation below
            "callbacks": "evaluation-loop",
            "callbacks_kwargs": {
                "factory": dataset.training,
                "frequency": 3,
                "prefix": "training",
                "evaluator": "rankcollection",  # by name: the import above registers it with PyKEEN
                # the loop marks filtered candidates with NaN: known distinguishes them from a NaN
                # of the model
                "evaluator_kwargs": {
                    "metrics": ["amri"],
                    "rank_types": ["realistic"],
                    "known": dataset.training,
                },
                "batch_size": 256,
                "use_tqdm": False,
            },
        },
        result_tracker=tracker,
        evaluator=evaluator,
        stopper="early",
        # any metric will do: PyKEEN maximizes by default; early_stopping passes the direction
        stopper_kwargs=early_stopping(
            "mr", evaluator=evaluator, frequency=3, patience=2, relative_delta=0.01
        ),
        random_seed=0,
    )
    print(
        f"{args.dataset}: validation mean rank "
        f"{' '.join(f'{value:.2f}' for value in result.stopper.results)}"
    )
    key = "training.both.realistic.adjusted_arithmetic_mean_rank_index"
    seen = [f"{values[key]:.3f}" for values in tracker.metrics.values() if key in values]
    print(f"AMRI of the training triples, every 3 epochs: {' '.join(seen)}")
    for name in ("both.realistic.inverse_harmonic_mean_rank", "adjusted_mrr", "tail.z_mrr"):
        print(f"{name:42}{result.get_metric(name):10.4f}")

    table = result.metric_results.table  # every rank of the test, with side, relation and triple
    print(
        f"\nany other metric of the same ranks: "
        f"{evaluate(table, metrics=['gmri', 'p_mrr', 'tie_rate'])}"
    )
    few = RankCollectionEvaluator(METRICS, rank_types=["realistic"])
    few.evaluate(
        result.model,
        result.training.mapped_triples[:1000],
        additional_filter_triples=[result.training.mapped_triples],
        use_tqdm=False,
        batch_size=256,
    )
    print("\n1000 training triples, for comparison:")
    print(few.collection.summary())

    if args.trials:
        search = hpo_pipeline(
            **common,
            **objective("mr"),  # the metric and its direction
            evaluator=RankCollectionEvaluator,
            evaluator_kwargs={"metrics": METRICS},
            optimizer_kwargs_ranges={
                "lr": {"type": "float", "low": 0.001, "high": 0.1, "log": True}
            },
            training_kwargs={"num_epochs": 3, "use_tqdm": False},
            training_kwargs_ranges={
                "batch_size": {"type": "int", "low": 256, "high": 512, "q": 256}
            },
            n_trials=args.trials,
        )
        values = sorted(trial.value for trial in search.study.trials if trial.value is not None)
        print(
            f"\n{len(values)} trials, mean ranks {values[0]:.2f} to {values[-1]:.2f}: "
            f"{search.study.direction.name}"
        )
    return evaluator.collection


if __name__ == "__main__":
    main()
