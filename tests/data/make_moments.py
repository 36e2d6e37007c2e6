"""Write moments.json: null means and variances by exact laws, 25 digits (takes minutes)."""

import json
import sys
from fractions import Fraction
from pathlib import Path

import mpmath

sys.path.insert(0, str(Path(__file__).parent.parent))
from exact_laws import INF, convolved, enumerated, median_law, number

SMALL = [
    ([1], None),
    ([5], None),
    ([2, 2], None),
    ([1, 9], None),
    ([12, 40], None),
    ([4, 6, 9], None),
    ([3, 5, 2, 7], None),
    ([1, 1, 4, 5], None),
    ([4, 4, 4, 2, 3], None),
    ([2, 3, 1, 4, 3, 2], None),
    ([4, 9, 5], [1, 2, 0.5]),
    ([3, 5, 2, 7], [1, 0, 1, 2]),
    ([2, 4, 3, 3], [1, 3, 3, 1]),
]
EXPONENTS = [-3, -2, -1, -0.7, -0.5, -0.1, 0, 0.01, 0.1, 0.5, 0.9, 0.99, 1, 1.01, 1.1, 1.5, 2, 3, INF, -INF]
METRICS = [(kind, p) for p in EXPONENTS for kind in ("power", "inverse")]
METRICS += [("hits", 1), ("hits", 4), ("variance", 1), ("variance", 0.5), ("median", 1), ("median", -1), ("mad", 1)]


def entry(kind, p, N, weights, result):
    mean, variance = (mpmath.nstr(x, 25) for x in result)
    if abs(result[1]) < mpmath.mpf(10) ** -45:
        variance = "0"
    p = str(p) if isinstance(p, float) and abs(p) == INF else p
    return {"kind": kind, "p": p, "N": N, "weights": weights, "mean": mean, "variance": variance}


def power(p):
    """f = r^p with integer p: exact sums."""
    return lambda r, v: (v * Fraction(r) ** p,)


def root(p):
    return lambda s: number(s) ** (1 / mpmath.mpf(p))


def main():
    entries = []
    for N, weights in SMALL:
        for kind, p in METRICS:
            entries.append(entry(kind, p, N, weights, enumerated(kind, p, N, weights)))
    mixed = [8, 6, 5, 4, 8, 6, 2, 3, 8, 1]
    large = [14, 13, 12, 11] * 8
    weighted = ([6, 5, 4, 3, 6, 5, 4, 3, 9, 9], [1, 2, 1, 2, 3, 1, 1, 1, 0.5, 2])
    for N, weights in ((mixed, None), weighted, (large, None)):
        for p in (1, 2, 3):
            entries.append(entry("inverse", p, N, weights, convolved(power(p), root(-p), N, weights)))
            if p > 1:
                entries.append(entry("power", p, N, weights, convolved(power(p), root(p), N, weights)))
    for N, weights in ((mixed, None), weighted):
        entries.append(entry("power", -1, N, weights, convolved(power(-1), root(-1), N, weights)))
        statistic = lambda r, v: (v * r, v * r * r)  # noqa: E731
        for p in (1, 0.5):
            spread = lambda a, b, p=p: number(b - a * a) ** number(p)  # noqa: E731
            entries.append(entry("variance", p, N, weights, convolved(statistic, spread, N, weights)))
    for N in ([8] * 10, mixed, mixed[:-1], [30, 12, 25, 7, 19, 2, 30, 1], [60, 50, 41]):
        for p in (1, -1):
            entries.append(entry("median", p, N, None, median_law(N, p)))
    text = ",\n".join(json.dumps(e) for e in entries)
    Path(__file__).with_name("moments.json").write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
