"""Size of `clustered_p_value`: how often p is at most 5% under random ranking, if the tasks of a cluster depend.

The 4 tasks of a cluster share their rank, as those of one target do under a scorer that is blind to the query.

Run: python tests/null/clustered_size.py
"""

import numpy as np

from torchrankmetrics import Ranks
from torchrankmetrics.inference import clustered_p_value

_RUNS, _TASKS, _CANDIDATES = 2000, 4, 1000


def main() -> None:
    """Print the share of p <= 5% for each metric and number of clusters."""
    random = np.random.default_rng(0)
    for metric in ("mr", "mrr", "hits@10"):
        for clusters in (20, 100, 1000):
            cluster = np.repeat(np.arange(clusters), _TASKS)
            ranks = random.integers(1, _CANDIDATES + 1, (_RUNS, clusters))[:, cluster]
            p = [clustered_p_value(Ranks(one, None, _CANDIDATES), metric, cluster=cluster) for one in ranks]
            print(f"{metric}, {clusters} clusters: {np.mean(np.array(p) <= 0.05):.1%}")


if __name__ == "__main__":
    main()
