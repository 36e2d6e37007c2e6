"""From scores to the table of a paper: the cells of the notebook next to this file.

python docs/notebook.py examples/scores_to_table.py
"""

# %% [markdown]
# # From scores to the paper's table
#
# Two scorers without training, one small graph, and every step from a matrix of scores to a table
# in LaTeX: filtered ranks, the values of random ranking, intervals, a paired test, and values by
# relation. Put your model in place of `score_tails` and `score_heads`; nothing else changes.

# %%
import tempfile
import textwrap
from pathlib import Path

import torch
from pykeen.datasets import get_dataset

from torchrankmetrics import (
    KnownTriples,
    RankCollection,
    RankTable,
    compare,
    evaluate,
    plots,
    rank_triples,
)
from torchrankmetrics.study import RankStudy


def splits(graph):
    """(n, 3) triples of train, valid and test."""
    return [part.mapped_triples for part in (graph.training, graph.validation, graph.testing)]


data = get_dataset(dataset="kinships")
train, valid, test = splits(data)
print(
    f"{len(train)} + {len(valid)} + {len(test)} triples, {data.num_entities} entities, "
    f"{data.num_relations} relations"
)

# %% [markdown]
# ## Random ranking
#
# Known positives of a query are excluded. The number of candidates that remain in each task needs
# no model, and neither does the expected value of a metric under random ranking.

# %%
known = KnownTriples(train, valid, test, num_entities=data.num_entities)
counts = torch.cat([known.num_candidates(test, side) for side in ("head", "tail")])
collection = RankCollection(["mrr", "hits@10", "mr"])
for name, metric in collection.items():
    print(f"{name:10} of random ranking {metric.moments(counts).mean:8.4f}")

# %% [markdown]
# ## Scores become ranks
#
# `frequency` scores an entity by how often it occurs with the relation, `neighbors` by how often it
# does so for entities that share targets with the entity of the query. `rank_triples` ranks both
# sides of every test triple. It stores the relation as the group and the index of the triple as the
# sample id, which comparisons and values by relation need.


# %%
def scorers(graph):
    """Two models of a graph, each as score_tails and score_heads."""
    train, *_ = splits(graph)
    links = torch.zeros(graph.num_relations, graph.num_entities, graph.num_entities)
    links[train[:, 1], train[:, 0], train[:, 2]] = 1
    shared = links @ links.mT @ links
    return {
        "frequency": (
            lambda heads, relations: links.sum(1)[relations],
            lambda relations, tails: links.sum(2)[relations],
        ),
        "neighbors": (
            lambda heads, relations: shared[relations, heads],
            lambda relations, tails: shared.mT[relations, tails],
        ),
    }


models = {}
for name, (score_tails, score_heads) in scorers(data).items():
    models[name] = RankCollection(["mrr", "hits@10", "amri", "tie_rate"])
    models[name].update(rank_triples(score_tails, score_heads, test, known, progress=False))
print(models["neighbors"].summary())

# %% [markdown]
# Papers print the first column. The adjusted index is 0 for random ranking and 1 for perfect ranks.
# Ties are reported because a model that gives many candidates the same score has three different
# ranks: the optimistic, the pessimistic, and the realistic one between them.

# %%
fig, ax = plots.rank_ecdf(models)

# %% [markdown]
# ## Confidence intervals
#
# The two sides of a triple are dependent, so each triple is one cluster of two tasks.

# %%
intervals = {name: ranks.confidence_intervals() for name, ranks in models.items()}
print(intervals["neighbors"])

# %% [markdown]
# ## Is one model better?
#
# The models were tested on the same tasks, so the tasks are paired. Three metrics are three tests,
# so Holm's method adjusts their p-values ("by Holm").

# %%
difference = compare(models["neighbors"], models["frequency"], ["mrr", "hits@10", "amri"])
for row in difference.rows:
    print(textwrap.fill(str(row), 88))
fig, ax = plots.forest(difference)

# %% [markdown]
# ## Values by relation
#
# One row per relation, the largest first. A gain on a relation of six tasks is not evidence.

# %%
relations = list(data.training.relation_id_to_label.values())
before, after = (models[name].breakdown(names=relations) for name in ("frequency", "neighbors"))
rows = zip(
    before["group"], before["count"], before["adjusted_mrr"], after["adjusted_mrr"], strict=True
)
for relation, count, old, new in sorted(rows, key=lambda row: -row[1])[:5]:
    print(f"{relation:8} {count:4} tasks   adjusted MRR {old:.3f} -> {new:.3f}")

# %% [markdown]
# ## The table of the paper
#
# With two more graphs, `RankStudy` makes the table: values with intervals, random ranking in the
# last line, the best of each graph in bold, and a mark for models that are not significantly
# different from it.

# %%
study = RankStudy()
for name in ("nations", "kinships", "umls"):
    graph = get_dataset(dataset=name)
    everything = KnownTriples(*splits(graph), num_entities=graph.num_entities)
    for model, (score_tails, score_heads) in scorers(graph).items():
        table = rank_triples(
            score_tails, score_heads, splits(graph)[-1], everything, progress=False
        )
        study.add(table, model=model, dataset=name)
paper = study.table(["mrr", "adjusted_mrr"])
print(paper.to_text(width=96))

# %% [markdown]
# On Nations an MRR of 0.55 is an adjusted index of 0.27: among 14 entities random ranking has an
# MRR of 0.38. The same values in LaTeX, for `booktabs`, with a caption that describes the protocol:

# %%
caption = "Test triples of both sides, filtered by all splits; realistic ranks."
values = paper.with_layout(intervals=False)
print(values.to_latex(caption=caption, label="tab:link-prediction"))

# %% [markdown]
# ## For the appendix
#
# The ranks are a file of a few kilobytes. Any other metric, side or test can be computed from it
# later.

# %%
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "neighbors.npz"
    models["neighbors"].table().save(file)
    again = evaluate(RankTable.load(file), metrics=["mrr", "adjusted_mrr"], sides=["head", "tail"])
print({key: round(value, 3) for key, value in again.items()})
