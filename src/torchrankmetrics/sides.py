"""The sides of a ranking task: what of a triple was predicted."""

from typing import Literal, get_args

EntitySide = Literal["head", "tail"]
TaskSide = Literal[EntitySide, "relation"]
ENTITY_SIDES: tuple[EntitySide, ...] = get_args(EntitySide)
TASK_SIDES: tuple[TaskSide, ...] = get_args(TaskSide)
QUERY_AND_ANSWER: dict[TaskSide, tuple[int, int, int]] = {"tail": (0, 1, 2), "head": (1, 2, 0), "relation": (0, 2, 1)}
"""Columns of a triple where a side is predicted: the two of the query, and the answer."""
