"""The sides of a ranking task: what of a triple was predicted."""

from typing import Literal, get_args

EntitySide = Literal["head", "tail"]
TaskSide = Literal[EntitySide, "relation"]
ENTITY_SIDES: tuple[EntitySide, ...] = get_args(EntitySide)
TASK_SIDES: tuple[TaskSide, ...] = get_args(TaskSide)
