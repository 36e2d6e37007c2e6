"""From scores to the table of a paper: the cells of the notebook beside this file.

python docs/notebook.py examples/scores_to_table.py
"""

# %% [markdown]
# # From scores to the paper's table
#
# Two scorers that were never trained, one small graph, and every step from a matrix of scores to a
# table in LaTeX with what a referee expects: filtered ranks, chance, intervals, a paired test, and
# where the difference comes from. Put your model in place of `score_tails` and `score_heads`;
# nothing else changes.

# %%
import tempfile
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
# ## What chance gives
#
# Known positives of a query are excluded. How many candidates are left in each task needs no model,
# and neither does the expectation of a metric under uniformly random ranks.

# %%
known = KnownTriples(train, valid, test, num_entities=data.num_entities)
counts = torch.cat([known.num_candidates(test, side) for side in ("head", "tail")])
chance = RankCollection(["mrr", "hits@10", "mr"])
for name, metric in chance.items():
    print(f"{name:10} by chance {metric.moments(counts).mean:8.4f}")

# %% [markdown]
# ## Scores become ranks
#
# `frequency` scores an entity by how often it occurs with the relation, `neighbours` by how often
# it does so for entities that share answers with the entity of the query. `rank_triples` ranks both
# sides of every test triple. The relation becomes the group, the index of the triple the sample id:
# they are what later questions need.


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
        "neighbours": (
            lambda heads, relations: shared[relations, heads],
            lambda relations, tails: shared.mT[relations, tails],
        ),
    }


models = {}
for name, (score_tails, score_heads) in scorers(data).items():
    models[name] = RankCollection(["mrr", "hits@10", "amri", "tie_rate"])
    models[name].update(rank_triples(score_tails, score_heads, test, known, progress=False))
print(models["neighbours"].summary())

# %% [markdown]
# The first column is what papers print. The adjusted index is 0 by chance and 1 for perfect ranks.
# Ties are reported because a model that gives many candidates one score has three different ranks;
# the realistic one is between the others.

# %%
fig, ax = plots.rank_ecdf(models)

# %% [markdown]
# ## How sure is a number?
#
# The two sides of a triple are not independent, so triples are drawn, not tasks.

# %%
intervals = {name: ranks.confidence_intervals() for name, ranks in models.items()}
print(intervals["neighbours"])

# %% [markdown]
# ## Is one better?
#
# The models were tested on the same tasks, so the tasks are paired. Three metrics are three chances
# to be wrong: the last p-value of a line is Holm's.

# %%
difference = compare(models["neighbours"], models["frequency"], ["mrr", "hits@10", "amri"])
for row in difference.rows:
    print(row)
fig, ax = plots.forest(difference)

# %% [markdown]
# ## Where does it come from?
#
# One row per relation, the largest first. A gain on a relation of six tasks is not evidence.

# %%
relations = list(data.training.relation_id_to_label.values())
before, after = (models[name].breakdown(names=relations) for name in ("frequency", "neighbours"))
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
print(paper)

# %% [markdown]
# On Nations an MRR of 0.55 is an index of 0.27: among 14 entities chance gives 0.38 of it. The same
# in LaTeX, for `booktabs`, with a caption that lets a reader compute it again:

# %%
caption = "Test triples of both sides, filtered by all splits; realistic ranks; 95% intervals, clustered by triple."
print(paper.to_latex(caption=caption, label="tab:link-prediction"))

# %% [markdown]
# ## For the appendix
#
# The ranks themselves are a few kilobytes. Whoever has them can ask every other question later:
# another metric, one side, another test.

# %%
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "neighbours.npz"
    models["neighbours"].table().save(file)
    again = evaluate(RankTable.load(file), metrics=["mrr", "adjusted_mrr"], sides=["head", "tail"])
print({key: float(f"{value:.4g}") for key, value in again.items()})
