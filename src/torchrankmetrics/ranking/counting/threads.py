"""Compiled code on several threads: it holds no lock of the interpreter."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import torch


def cuts(number: int, threads: int) -> list[int]:
    """Where to part a number of things for so many threads, or for as many as torch has."""
    threads = max(1, min(torch.get_num_threads(), threads))
    return [number * i // threads for i in range(threads + 1)]


def side_by_side(function: Callable[..., Any], pieces: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Results of the pieces in order, the first of them made here."""
    if len(pieces) == 1:
        return [function(*pieces[0])]
    waiting = [_pool(len(pieces) - 1, os.getpid()).submit(function, *piece) for piece in pieces[1:]]
    return [function(*pieces[0]), *(future.result() for future in waiting)]


@cache
def _pool(workers: int, process: int) -> ThreadPoolExecutor:
    # one per process, for threads do not survive a fork
    return ThreadPoolExecutor(workers, thread_name_prefix="torchrankmetrics")
