"""Faults of single tasks, bits that travel with the rows: found without waiting for the device, told at ``compute``."""

NAN = 1
TARGET_RANGE = 2
EXCLUDE_RANGE = 4
TARGET_RESTRICTED = 8
RANK_RANGE = 16
RANK_ORDER = 32
NO_CANDIDATES = 64
WEIGHT = 128

# NAN is a warning (the ranks are right: NaN never helps); the others are errors
ERRORS = {
    TARGET_RANGE: (IndexError, "target must lie in [0, N) for scores (B, N), its rows in [0, B)"),
    EXCLUDE_RANGE: (IndexError, "exclude must hold rows in [0, B) and columns in [0, N) for scores (B, N)"),
    TARGET_RESTRICTED: (ValueError, "target must not be excluded by the (N,) restriction: the true one is a candidate"),
    RANK_RANGE: (ValueError, "ranks must lie between 1 and num_candidates"),
    RANK_ORDER: (ValueError, "optimistic ranks must not be above pessimistic ranks"),
    NO_CANDIDATES: (ValueError, "num_candidates must be at least 1 (the true candidate counts)"),
    WEIGHT: (ValueError, "weight must be finite and not negative, and not zero for a whole update"),
}
