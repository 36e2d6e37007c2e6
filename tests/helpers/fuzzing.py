"""Numbers of cases: few in every run of the suite, many with ``HYPOTHESIS_PROFILE=explore``."""

import os

from hypothesis import HealthCheck, settings


def cases(short: int, long: int, steps: int = 50) -> settings:
    """Settings of a test; a state machine takes up to ``steps`` steps in a case.

    A pass inside a mode tries four cases.
    """
    number = {"explore": long, "few": min(short, 4)}.get(
        os.environ.get("HYPOTHESIS_PROFILE", ""), short
    )
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=number, stateful_step_count=steps, suppress_health_check=slow)
