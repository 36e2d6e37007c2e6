"""From scores to the table of a paper: the cells of the notebook beside this file.

python docs/notebook.py examples/scores_to_table.py
"""

# %% [markdown]
# # From scores to the paper's table
#
# Two scorers that were never trained, one small graph, and every step from a matrix of scores to a table in LaTeX
# with all that a referee asks for: filtered ranks, chance, intervals, a paired test, and where the difference
# comes from. Put your model in the place of `score_tails` and `score_heads`; nothing else changes.

# %%
import tempfile
from pathlib import Path

import torch
from pykeen.datasets import get_dataset

from torchrankmetrics import KnownTriples, RankCollection, RankTable, compare, evaluate, plots, rank_triples

data = get_dataset(dataset="kinships")
train, valid, test = (part.mapped_triples for part in (data.training, data.validation, data.testing))
print(
    f"{len(train)} + {len(valid)} + {len(test)} triples, {data.num_entities} entities, {data.num_relations} relations"
)

# %% [markdown]
# ## What chance gives
#
# Known answers of a query are no candidates. How many candidates are left in each task needs no model, and
# neither does the expectation of a metric under uniformly random ranks.

# %%
known = KnownTriples(train, valid, test, num_entities=data.num_entities)
counts = torch.cat([known.num_candidates(test, side) for side in ("head", "tail")])
chance = RankCollection(["mrr", "hits@10", "mr"])
for name, metric in chance.items():
    print(f"{name:10} by chance {metric.moments(counts).mean:8.4f}")

# %% [markdown]
# ## Scores become ranks
#
# `frequency` scores an entity by how often it occurs with the relation, `neighbours` by how often it does so for
# entities that share answers with that of the query. `rank_triples` ranks both sides of every test triple. The
# relation becomes the group, the index of the triple the sample id: they are what later questions need.

# %%
links = torch.zeros(data.num_relations, data.num_entities, data.num_entities)
links[train[:, 1], train[:, 0], train[:, 2]] = 1
shared = links @ links.mT @ links

scorers = {
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
for name, (score_tails, score_heads) in scorers.items():
    models[name] = RankCollection(["mrr", "hits@10", "amri", "tie_rate"])
    models[name].update(rank_triples(score_tails, score_heads, test, known, progress=False))
print(models["neighbours"].summary())

# %% [markdown]
# The first column is what papers print. The adjusted index is 0 by chance and 1 for perfect ranks. Ties are
# reported because a model that gives many candidates one score has three different ranks; the realistic one is
# between the others.

# %%
fig, ax = plots.rank_ecdf(models)

# %% [markdown]
# ## How sure is a number?
#
# The two sides of a triple are not independent, so triples are drawn, not tasks.

# %%
intervals = {name: ranks.confidence_intervals(cluster="sample_id") for name, ranks in models.items()}
print(intervals["neighbours"])

# %% [markdown]
# ## Is one better?
#
# The models were tested on the same tasks, so the tasks are paired. Three metrics are three chances to be wrong:
# the last p-value of a line is Holm's.

# %%
difference = compare(models["neighbours"], models["frequency"], ["mrr", "hits@10", "amri"], cluster="sample_id")
for row in difference.rows:
    print(row)
fig, ax = plots.forest(difference)

# %% [markdown]
# ## Where does it come from?
#
# One row per relation, the largest first. A gain on a relation of six tasks is no news.

# %%
relations = list(data.training.relation_id_to_label.values())
before, after = (models[name].breakdown(names=relations) for name in ("frequency", "neighbours"))
rows = zip(before["group"], before["count"], before["adjusted_mrr"], after["adjusted_mrr"], strict=True)
for relation, count, old, new in sorted(rows, key=lambda row: -row[1])[:5]:
    print(f"{relation:8} {count:4} tasks   adjusted MRR {old:.3f} -> {new:.3f}")

# %% [markdown]
# ## The table, in LaTeX
#
# Values with their intervals, chance in a line of its own, and all that a reader needs to compute it again in the
# caption.

# %%
columns = {"mrr": "MRR", "hits_at_10": "H@10", "amri": "AMRI"}
by_chance = {**{key: chance[key].moments(counts).mean for key in ("mrr", "hits_at_10")}, "amri": 0.0}
lines = [r"\begin{tabular}{l" + "r" * len(columns) + "}", r"\toprule"]
lines += [" & ".join(["model", *columns.values()]) + r" \\", r"\midrule"]
for name, rows in intervals.items():
    cells = [f"{rows[key].value:.3f} [{rows[key].low:.3f}, {rows[key].high:.3f}]" for key in columns]
    lines += [" & ".join([name, *cells]) + r" \\"]
lines += [
    " & ".join(["chance", *(f"{by_chance[key]:.3f}" for key in columns)]) + r" \\",
    r"\bottomrule",
    r"\end{tabular}",
]
print("\n".join(lines))
print(
    "% Kinships, both sides, filtered by train, valid and test; realistic ranks; 95 % intervals, triples drawn;\n"
    f"% {len(counts)} ranks among {counts.min()} to {counts.max()} candidates"
)

# %% [markdown]
# ## For the appendix
#
# The ranks themselves are a few kilobytes. Whoever has them can ask every other question later: another metric,
# one side, another test.

# %%
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "neighbours.npz"
    models["neighbours"].table().save(file)
    again = evaluate(RankTable.load(file), metrics=["mrr", "adjusted_mrr"], sides=["head", "tail"])
print({key: float(f"{value:.4g}") for key, value in again.items()})
