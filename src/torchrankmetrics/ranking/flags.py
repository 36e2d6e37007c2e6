"""Flags of ranking tasks (NaN, sampled, unfiltered), in the rows until `compute` reports them."""

from torch import Tensor

NAN = 1
TARGET_RANGE = 2
EXCLUDE_RANGE = 4
TARGET_EXCLUDED = 8
RANK_RANGE = 16
RANK_ORDER = 32
NO_CANDIDATES = 64
WEIGHT = 128
SAMPLED = 256
REPEATED = 512
FILTERED = 1024
RAW = 2048
QUERY = 4096
PARTIAL = 8192
ENTRY = 1 << 14
EMPTY = 1 << 15
EXCLUDED = 1 << 16
UNLISTED = 1 << 17  # the look-up of known positives does not contain the target: a warning
LARGEST = UNLISTED
UNKNOWN = -1  # number of candidates of a task that is not known: such tasks have base values only

# NAN and REPEATED (the id came before in the same update) are warnings, SAMPLED is a note in the
# summary, PARTIAL marks a sequential evaluation, whose values have other names; FILTERED and RAW:
# the target is excluded from the other tasks of its query, or is a candidate there. EXCLUDED: an
# `exclude` that is not a look-up of known positives contained the target, an error for metrics of
# queries. ENTRY and EMPTY mark rows that are not ranking tasks: a score of a flat list that is not
# ranked yet, and a query without a relevant item. The others are errors.
ERRORS = {
    TARGET_RANGE: (IndexError, "target must lie in [0, N) for scores (B, N), its rows in [0, B)"),
    EXCLUDE_RANGE: (
        IndexError,
        "exclude must contain rows in [0, B) and columns in [0, N) for scores (B, N)",
    ),
    TARGET_EXCLUDED: (
        ValueError,
        "target must not be excluded for all rows: the true one is a candidate",
    ),
    RANK_RANGE: (ValueError, "ranks must lie between 1 and num_candidates"),
    RANK_ORDER: (ValueError, "optimistic ranks must not be above pessimistic ranks"),
    NO_CANDIDATES: (
        ValueError,
        "num_candidates must be at least 1 (the target counts) and below 2^62",
    ),
    QUERY: (ValueError, "query must contain ids from 0 to 2^63 - 1"),
    WEIGHT: (
        ValueError,
        "weight and gain must be finite and not negative, and weight not zero for a whole update",
    ),
}


def check(
    wrong: Tensor, values: Tensor, text: str, kind: int, flags: Tensor | None
) -> Tensor | None:
    """Raise an error on the CPU; on an accelerator flag the tasks, to raise at ``compute``."""
    if not wrong.is_cpu:
        return wrong * kind if flags is None else flags | wrong * kind
    if wrong.any():
        first = int(wrong.nonzero()[0])
        raise ValueError(f"{text}, got {values[first].item()} for task {first}")
    return flags
