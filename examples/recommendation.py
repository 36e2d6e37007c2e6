"""Recommendation, leave one out: rank the last item of every user among the items not seen before.

python examples/recommendation.py [--users 2000] [--items 500]

The clicks are generated: users have preferences, and some items are more popular. Two recommenders
are tested on the same users: popular items, and items that are clicked by the same users (cosine).
With ``--held 3`` three items of each user are held out, and queries have three relevant items.
"""

import argparse

import torch
from torch import Tensor

from torchrankmetrics import RankCollection, compare


def clicks(users: int, items: int, tastes: int = 8, each: int = 20) -> Tensor:
    """Items (users, each), different ones, in the order of the clicks."""
    popularity = 1 / torch.arange(1.0, items + 1)
    liking = torch.where(
        torch.randint(0, tastes, (items,)) == torch.randint(0, tastes, (users, 1)), 6.0, 1.0
    )
    return torch.multinomial(popularity * liking, each)


def main() -> None:
    """Hold items out, score, mask what was seen, print both and their difference."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--items", type=int, default=500)
    parser.add_argument("--held", type=int, default=1, help="items of each user that are held out")
    given = parser.parse_args()

    torch.manual_seed(0)
    clicked = clicks(given.users, given.items)
    held_out = clicked[:, -given.held :]
    seen = torch.zeros(given.users, given.items, dtype=torch.bool).scatter_(
        1, clicked[:, : -given.held], True
    )
    clicks_of = seen.double()
    norm = clicks_of.norm(dim=0).clamp(min=1)
    similarity = (clicks_of.T @ clicks_of) / (norm[:, None] * norm)
    recommenders = {
        "popular": clicks_of.sum(0).expand(given.users, -1),
        "item kNN": clicks_of @ similarity,
    }

    tables = {}
    for name, scores in recommenders.items():
        collection = RankCollection(["hr@10", "ndcg@10", "recall@10", "rr", "query_auc"])
        # seen items are excluded; the ids pair the held-out items of both recommenders
        collection.update(
            scores, held_out.tolist(), exclude=seen, sample_id=torch.arange(held_out.numel())
        )
        print(f"\n{name}")
        print(collection.summary())
        tables[name] = collection.table()
    print()
    print(compare(tables["popular"], tables["item kNN"], "ndcg@10"))


if __name__ == "__main__":
    main()
