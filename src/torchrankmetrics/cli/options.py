"""Options that ``report`` and ``compare`` share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import click

from torchrankmetrics.cli.output import opt
from torchrankmetrics.cli.sources import EmptyQueries

Metrics = Annotated[
    Sequence[str],
    opt(
        "Metrics, such as mrr,hits@10 or -m mrr -m hits@10. Default: mrr, mr, hits@1, hits@3, "
        "hits@10, amri, adjusted_mrr, z_mrr; of runs rr@10, ndcg@10, recall@100; of compare mrr, "
        "of runs ndcg@10.",
        "--metric",
        "-m",
        multiple=True,
    ),
]
Qrels = Annotated[Path | None, opt("Relevance of documents, for --run: TREC, BEIR or JSON.")]
Runs = Annotated[
    Sequence[Path],
    opt("Scores of documents: TREC, BEIR or JSON; repeatable.", "--run", multiple=True),
]
Documents = Annotated[int | None, opt("Size of the collection, for chance-adjusted views of runs.")]
Threshold = Annotated[float, opt("Smallest label of a relevant document, for binary metrics.")]
EmptyQueriesOption = Annotated[
    EmptyQueries | None,
    opt(
        "Queries without a relevant item; default: zero for runs (as trec_eval), else skip with a "
        "note."
    ),
]
IdenticalIds = Annotated[
    bool,
    opt("Leave out documents of a run whose id is the query's, as BEIR does.", is_flag=True),
]
MaxBytes = Annotated[
    int,
    opt("Maximum memory of a file of ranks; larger files are an error.", type=click.IntRange(1)),
]
