"""Distributed evaluation in Lightning: batch samplers without padding."""

from collections.abc import Iterable, Iterator, Sized

from torch import distributed
from torch.utils.data import BatchSampler, DistributedSampler, SequentialSampler

from torchrankmetrics.validation import check_int


class UnpaddedBatchSampler(BatchSampler):
    """Assign every sample to exactly one process, in equally many batches on each.

    ``DistributedSampler`` repeats samples; with ``UnrepeatedDistributedSampler`` one process may
    run a batch more than another, which hangs if the model communicates in its forward pass. Here
    neither happens; with ``batch_size=1`` a batch may hold two samples. The sampler may be created
    before the process group.

    Args:
        dataset (sized dataset): anything with a length of at least the number of processes.
        batch_size (int): samples per batch and process.
        drop_last (bool, default False): must be False; accepted because trainers pass it.
        num_replicas (int, default None): number of processes; None: the size of the process group,
            1 without one.
        rank (int, default None): number of this process; None: its rank in the process group.
        sampler (iterable of int, default None): the ``DistributedSampler`` that a trainer passes.

    Raises:
        ValueError: if a number is out of range, drop_last is True, or the rank is unknown.

    >>> from torchrankmetrics.integrations.lightning import UnpaddedBatchSampler
    >>> [list(UnpaddedBatchSampler(range(9), 4, num_replicas=2, rank=rank)) for rank in (0, 1)]
    [[[0, 1], [4, 5]], [[2, 3], [6, 7, 8]]]
    """

    def __init__(
        self,
        dataset: Sized,
        batch_size: int,
        drop_last: bool = False,
        *,
        num_replicas: int | None = None,
        rank: int | None = None,
        sampler: Iterable[int] | None = None,
    ) -> None:
        check_int("batch_size", batch_size, 1)
        if drop_last:
            raise ValueError(
                "drop_last must be False, got True: every sample is assigned to a process"
            )
        # trainers rebuild the batch sampler with their sampler: as ``sampler``, or instead of the
        # dataset
        counted = dataset if sampler is None else sampler
        if isinstance(counted, DistributedSampler):
            num_replicas = counted.num_replicas if num_replicas is None else num_replicas
            rank = counted.rank if rank is None else rank
            if sampler is None:
                dataset = counted.dataset  # type: ignore[assignment]
        super().__init__(SequentialSampler(dataset), batch_size, drop_last=False)
        self.dataset = dataset
        self._num_replicas = num_replicas
        self._rank = rank
        if num_replicas is not None and rank is not None:
            self._place()

    def __len__(self) -> int:
        return self._place()[2]

    def __iter__(self) -> Iterator[list[int]]:
        rank, replicas, batches = self._place()
        size = len(self.dataset)
        chunks = batches * replicas
        for chunk in range(rank, chunks, replicas):
            yield list(range(chunk * size // chunks, (chunk + 1) * size // chunks))

    def _place(self) -> tuple[int, int, int]:
        """Return the number of this process, of all processes, and of the batches of each, now."""
        size = len(self.dataset)
        replicas = self._num_replicas
        rank = self._rank
        if distributed.is_available() and distributed.is_initialized():
            replicas = distributed.get_world_size() if replicas is None else replicas
            rank = distributed.get_rank() if rank is None else rank
        replicas = 1 if replicas is None else replicas
        if rank is None and replicas > 1:
            raise ValueError(
                f"rank must be given with num_replicas={replicas} where there is no process group"
            )
        rank = rank or 0
        if not 0 <= rank < replicas:
            raise ValueError(
                f"rank must be in [0, {replicas}) for {replicas} processes, got {rank}"
            )
        if size < replicas:
            raise ValueError(
                f"dataset must have a sample for each of {replicas} processes, got {size} samples"
            )
        wanted = -(-size // (self.batch_size * replicas))
        return rank, replicas, min(wanted, size // replicas)  # no batch may be empty
