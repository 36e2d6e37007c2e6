"""A default device for the library alone: the tests make their own tensors on the CPU."""

import sys
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors


class LibraryOn(TorchFunctionMode):
    """Like ``torch.set_default_device``, for tensors that the library makes without a device.

    On "meta", which has no values, the next step that needs one is an error.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = torch.device(device)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _device_constructors() and kwargs.get("device") is None:
            caller = sys._getframe(1).f_globals.get("__name__", "")
            if caller.split(".")[0] == "torchrankmetrics":
                kwargs["device"] = self.device
        return func(*args, **kwargs)
