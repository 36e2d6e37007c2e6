"""Tests are many and small: one thread each, also for the processes they start."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

torch.set_num_threads(1)
