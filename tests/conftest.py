"""Fixtures and options of all tests: one thread each, also in the processes they start.

Hypothesis draws the same examples in every run, so that a failure is of the change that brought it;
``HYPOTHESIS_PROFILE=explore`` draws new ones.
"""

import gc
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Generator, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from worker_pool import WorkerPool


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--inference-mode", action="store_true", help="run every test inside torch.inference_mode()"
    )
    parser.addoption(
        "--default-device", help="the default device for the library, for example meta"
    )
    parser.addoption(
        "--first-cases", action="store_true", help="run the first case of every test function"
    )


def pytest_configure(config: pytest.Config) -> None:
    # a process that hands tests to others needs none of this
    if getattr(config.option, "numprocesses", None):
        return
    import hypothesis
    import torch

    hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
    hypothesis.settings.register_profile("explore", deadline=None)
    hypothesis.settings.register_profile("few", derandomize=True, deadline=None, max_examples=4)
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
    torch.set_num_threads(1)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    # a million objects of modules, which stay: to search them for garbage takes a third of the time
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


# ranks of tests are random integers, which tie; README, docs and docstrings do not
TIES = "ignore:.* of the targets tie with another:torchrankmetrics.errors.RankMetricWarning"


@pytest.hookimpl(trylast=True)  # the first of those that other options leave
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings(TIES), append=False)
    if config.getoption("--first-cases"):
        first: dict[str, pytest.Item] = {}
        for item in items:
            first.setdefault(item.nodeid.partition("[")[0], item)
        items[:] = first.values()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    import torch

    from default_device import LibraryOn

    # what Lightning does on NCCL and not on gloo: a plain test on a CPU never sees it
    trains = item.get_closest_marker("trains") is not None
    device = item.config.getoption("--default-device")
    elsewhere = nullcontext() if device is None else LibraryOn(device)
    inside = (
        torch.inference_mode()
        if item.config.getoption("--inference-mode") and not trains
        else nullcontext()
    )
    with elsewhere, inside:
        return (yield)


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    pool = WorkerPool(4)
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def nations() -> Any:
    """PyKEEN's data set of that name."""
    pytest.importorskip(
        "pykeen", reason="PyKEEN 1.11.1 is not installed: pip install 'torchrankmetrics[dev]'"
    )
    from pykeen.datasets import Nations

    return Nations()


@pytest.fixture
def cli_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the files of ``command_line``."""
    from command_line import write_files

    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    return tmp_path
