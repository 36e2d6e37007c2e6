"""What distributed evaluation in Lightning lacks: batches without padding that stay in step."""

from collections.abc import Iterator, Sized

import torch
from torch.utils.data import Sampler


class UnpaddedBatchSampler(Sampler[list[int]]):
    """Deal every sample to exactly one process, in equally many batches on each.

    torch's ``DistributedSampler`` repeats samples to fill up. Lightning's ``UnrepeatedDistributedSampler`` does not,
    but one process may run a batch more than another: a hang for a model that communicates in its forward pass (FSDP),
    or for ``dist_sync_on_step``. Here neither happens; with ``batch_size=1`` a batch may hold two samples instead.

    Args:
        dataset: anything with a length of at least the number of processes.
        batch_size: samples per batch and process.
        num_replicas: number of processes; None: that of the process group, 1 without one.
        rank: number of this process; None: that in the process group, 0 without one.

    Raises:
        ValueError: if batch_size or rank is out of range, or the dataset has fewer samples than there are processes.

    >>> [list(UnpaddedBatchSampler(range(9), 4, num_replicas=2, rank=rank)) for rank in (0, 1)]
    [[[0, 1], [4, 5]], [[2, 3], [6, 7, 8]]]
    """

    def __init__(
        self, dataset: Sized, batch_size: int, *, num_replicas: int | None = None, rank: int | None = None
    ) -> None:
        grouped = torch.distributed.is_available() and torch.distributed.is_initialized()
        world = torch.distributed.get_world_size() if grouped else 1
        self.num_replicas = num_replicas if num_replicas is not None else world
        self.rank = rank if rank is not None else torch.distributed.get_rank() if grouped else 0
        self.size = len(dataset)
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(
                f"rank must be in [0, {self.num_replicas}) for {self.num_replicas} processes, got {self.rank}"
            )
        if self.size < self.num_replicas:
            raise ValueError(
                f"dataset must have a sample for each of {self.num_replicas} processes, got {self.size} samples"
            )
        self.batch_size = batch_size
        wanted = -(-self.size // (batch_size * self.num_replicas))
        self.num_batches = min(wanted, self.size // self.num_replicas)  # no batch may be empty

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[list[int]]:
        chunks = self.num_batches * self.num_replicas
        for chunk in range(self.rank, chunks, self.num_replicas):
            yield list(range(chunk * self.size // chunks, (chunk + 1) * self.size // chunks))
