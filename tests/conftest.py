"""Tests are many and small: one thread each, also for the processes they start; all of them once more on request.

Hypothesis draws the same examples in every run, so that a failure is of the change that brought it;
``HYPOTHESIS_PROFILE=explore`` draws new ones.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Generator
from typing import Any

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--inference-mode", action="store_true", help="run every test inside torch.inference_mode()")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    # what Lightning does on NCCL and not on gloo: a plain test on a CPU never sees it
    trains = item.get_closest_marker("trains") is not None
    with torch.inference_mode(item.config.getoption("--inference-mode") and not trains):
        return (yield)
