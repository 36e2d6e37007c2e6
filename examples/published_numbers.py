"""Compare published values with random ranking, and show what their rounding does to the result.

    python examples/published_numbers.py

First, values of a relation-frequency baseline, computed with this package on two graphs: candidates
are scored by how often they occur with the relation in training, then by degree; realistic ranks,
filtered by all splits. Second, one scorer of fixed quality among more and more candidates, which
are sampled uniformly: only AMRI does not change.
"""

import numpy as np

from torchrankmetrics import adjust, evaluate

# mean filtered number of candidates over both sides, number of entities, and the values as a paper
# would print them
BASELINE = {
    "FB15k-237": (14_306, 14_541, {"mr": "1233", "mrr": "0.235", "hits_at_10": "0.357"}),
    "WN18RR": (40_928, 40_943, {"mr": "16042", "mrr": "0.026", "hits_at_10": "0.044"}),
}
CANDIDATES = (14, 1_000, 40_000)


def main() -> None:
    """Print both tables."""
    print("a relation-frequency baseline    printed   adjusted index")
    for graph, (candidates, entities, values) in BASELINE.items():
        for metric, value in values.items():
            print(f"{graph:12}{metric:>16}{value:>12}   {adjust(value, metric, candidates)}")
        by_entities = adjust(values["mr"], "mr", entities)
        print(
            f"{'':12}{'mr':>16}{values['mr']:>12}   {by_entities}  among all {entities} entities: "
            "not what is ranked"
        )

    print("\none scorer, 20,000 tasks    " + "".join(f"{f'N = {n}':>14}" for n in CANDIDATES))
    rng = np.random.default_rng(0)
    # share of the negatives that score higher than the true one
    better = 10.0 ** rng.uniform(-4, 0, 20_000)
    names = ["amri", "adjusted_mrr", "adjusted_hits_at_10", "adjusted_gmr", "z_mrr"]
    columns = [evaluate(1 + rng.binomial(n - 1, better), n, names) for n in CANDIDATES]
    for name in names:
        print(f"{name:28}" + "".join(f"{column[name]:14.3f}" for column in columns))


if __name__ == "__main__":
    main()
