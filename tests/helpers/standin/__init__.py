"""A stand-in accelerator for tests on machines without one: the device ``standin``.

A tensor on it has no ``numpy()``, does not mix with tensors of the host, and refuses indices out of
bounds, as on CUDA; what the host would wait for is counted, and forbidden inside ``no_waiting()``.
It says nothing about speed, and lacks streams and autocast.
"""

import fcntl
import functools
import hashlib
import os
import shutil
import sysconfig
import types
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import cpp_extension

NAME = "standin"
_SOURCE = Path(__file__).with_name("device.cpp")


def device() -> torch.device:
    """Give the device; the test is skipped where nothing can compile it."""
    _extension()
    return torch.device(NAME)


def waits() -> int:
    return int(_extension().waits())


@contextmanager
def no_waiting() -> Iterator[None]:
    """Raise where the host would wait for the device, and for what somebody caught on the way."""
    before, earlier = waits(), _extension().forbid(True)
    try:
        yield
        assert waits() == before
    finally:
        _extension().forbid(earlier)


@functools.cache
def _extension() -> Any:
    """Compile on first use, once per machine, source and version of PyTorch.

    Processes wait for the first of them.
    """
    compiler = cpp_extension.get_cxx_compiler()
    # where pip puts ninja, which PyTorch looks for in the PATH
    scripts = sysconfig.get_path("scripts")
    if shutil.which(compiler) is None:
        pytest.skip(f"the stand-in accelerator needs a C++ compiler, and {compiler} is not there")
    content = _SOURCE.read_bytes()
    version = hashlib.sha256(content + torch.__version__.encode()).hexdigest()[:16]
    folder = Path(cpp_extension.get_default_build_root(), "torchrankmetrics_standin", version)
    folder.mkdir(parents=True, exist_ok=True)
    # PyTorch's own lock is a file that a killed build leaves behind; this one ends with its process
    with Path(folder, "building").open("w") as building, pytest.MonkeyPatch.context() as patch:
        fcntl.flock(building, fcntl.LOCK_EX)
        Path(folder, "lock").unlink(missing_ok=True)
        patch.setenv("PATH", scripts + os.pathsep + os.environ["PATH"])
        # one place for all checkouts: the path is part of what ninja knows a build by
        source = folder / _SOURCE.name
        if not source.exists() or source.read_bytes() != content:
            source.write_bytes(content)
        extension = cpp_extension.load(
            "standin_device", [str(source)], ["-O0", "-w"], build_directory=str(folder)
        )
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, _module())
    extension.register_hooks()
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    return extension


def _module() -> types.ModuleType:
    """What ``torch.standin`` must answer, as ``torch.cuda`` does."""
    module = types.ModuleType(f"torch.{NAME}")
    answers = {"is_available": True, "device_count": 1, "current_device": 0, "synchronize": None}
    answers |= {
        "manual_seed_all": None,
        "_is_in_bad_fork": False,
        "get_amp_supported_dtype": [torch.bfloat16],
    }
    for name, answer in answers.items():
        setattr(module, name, lambda *given, answer=answer: answer)
    module.device = lambda device: nullcontext()  # type: ignore[attr-defined]
    return module
