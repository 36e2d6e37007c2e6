"""Docstrings of the named metrics in torchmetrics' form: what all of them share is written once, and put in here."""

import inspect
import re

_EXAMPLE = """\
Example:
    >>> import torch
    >>> from torchrankmetrics import {name}
    >>> preds = torch.tensor([[0.9, 0.1, 0.4, 0.2], [0.2, 0.4, 0.4, 0.9], [0.5, 0.8, 0.6, 0.1]])
    >>> target = torch.tensor([0, 1, 2])  # realistic ranks 1, 2.5 and 2 among 4 candidates
"""


def host_form(name: str, own: str, general: str, fixed: set[str]) -> str:
    """Put the arguments of all metrics, and the scores of the example, into the docstring of one.

    Args:
        name: of the class.
        own: its docstring: text, its own ``Args:`` if any, ``Example:``.
        general: the docstring whose ``Args:`` it shares.
        fixed: names of arguments that it does not share.
    """
    text, example = inspect.cleandoc(own).split("Example:\n")
    section = inspect.cleandoc(general).split("Args:\n")[1].split("\n\n")[0]
    shared = re.findall(r"^    \S.*(?:\n     .*)*", section, re.MULTILINE)
    args = [entry for entry in shared if entry.strip().split(":")[0] not in fixed]
    head = text.rstrip() + ("\n" if "Args:\n" in text else "\n\nArgs:\n")
    return head + "\n".join(args) + "\n\n" + _EXAMPLE.format(name=name) + example.rstrip() + "\n"
