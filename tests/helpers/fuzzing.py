"""How many cases the fuzzers try: few in every run of the suite, many with ``HYPOTHESIS_PROFILE=explore``."""

import os

from hypothesis import HealthCheck, settings


def cases(short: int, long: int, steps: int = 50) -> settings:
    """Settings of a fuzzer; a state machine takes up to so many steps in a case."""
    explore = os.environ.get("HYPOTHESIS_PROFILE") == "explore"
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=long if explore else short, stateful_step_count=steps, suppress_health_check=slow)
