"""Processes for tests: a pool, started once per module, with a gloo group of any size per job."""

import gc
import importlib
import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from operator import attrgetter
from pathlib import Path
from typing import Any

# a server that has imported torch forks each worker in milliseconds; where there is none, workers
# start from scratch
_METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
_PRELOAD = [
    f"torchrankmetrics.{name}" for name in ("metrics.collection", "inference.compare", "kg.triples")
]
_PRELOAD += ["torch.distributed", "hypothesis", "pytest", "pytorch_lightning", "numba"]


def server() -> Any:
    """What processes are started by."""
    context: Any = multiprocessing.get_context(_METHOD)
    if _METHOD == "forkserver":
        context.set_forkserver_preload(_PRELOAD)
    return context


class WorkerError(RuntimeError):
    """A job that raised on some process; the message holds the traceback of each."""


class WorkerPool:
    """Processes that run jobs as the ranks of a gloo group.

    After ``timeout`` seconds a job counts as hung.
    """

    def __init__(
        self, size: int, *, timeout: float = 100.0, collective_timeout: float = 60.0
    ) -> None:
        context = server()
        self._timeout = timeout
        self._folder = tempfile.TemporaryDirectory()
        self._jobs = 0
        self._workers: list[tuple[Any, Connection]] = []
        for _ in range(size):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, collective_timeout), daemon=False)
            process.start()
            there.close()
            self._workers.append((process, here))

    def run(
        self,
        job: Callable[..., Any],
        arguments: Sequence[tuple[Any, ...]],
        *,
        dies: int | None = None,
    ) -> Any:
        """Call ``job(*arguments[rank])`` on a process per item; results in the order of ranks.

        The job is a function at the top of an importable module; the rank that is expected to die
        has the result None.
        """
        self._jobs += 1
        # a store in a file: no port to be found, none to be taken by somebody else
        store = Path(self._folder.name, f"store{self._jobs}").as_uri()
        name = (job.__module__, job.__qualname__)
        for rank, (_, pipe) in enumerate(self._workers[: len(arguments)]):
            pipe.send((name, store, rank, len(arguments), arguments[rank]))
        results, errors = [], []
        for rank, (_, pipe) in enumerate(self._workers[: len(arguments)]):
            try:
                if not pipe.poll(self._timeout):
                    self.close(kill=True)
                    raise WorkerError(f"rank {rank} gave no answer within {self._timeout} s")
                result, error = pipe.recv()
            except EOFError:
                result, error = None, None if rank == dies else "died"
            results.append(result)
            if error is not None:
                errors.append(f"--- rank {rank} ---\n{error}")
        if errors:
            raise WorkerError("\n".join(errors))
        return results

    def close(self, *, kill: bool = False) -> None:
        for process, pipe in self._workers:
            pipe.close()
            if kill:
                process.kill()
            process.join(10)
        self._workers = []
        self._folder.cleanup()


def _serve(pipe: Connection, collective_timeout: float) -> None:
    import torch

    gc.freeze()  # what the server has imported is shared and stays
    torch.set_num_threads(1)
    while True:
        try:
            name, store, rank, size, arguments = pipe.recv()
        except (EOFError, ConnectionResetError):
            # without destructors: a group whose other half is gone may wait for it
            os._exit(0)
        result, error = None, None
        try:
            timeout = timedelta(seconds=collective_timeout)
            torch.distributed.init_process_group("gloo", store, timeout, size, rank)
            result = attrgetter(name[1])(importlib.import_module(name[0]))(*arguments)
            torch.distributed.barrier()  # nobody leaves while another still talks to it
        except Exception:
            error = traceback.format_exc()
        finally:
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
        pipe.send((result, error))
