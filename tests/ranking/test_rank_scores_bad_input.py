"""Bad input of rank_scores: an error that names the argument, what came and what was expected."""

import pytest
import torch

from torchrankmetrics import rank_scores
from torchrankmetrics.kg import KnownAnswers

SCORES = torch.zeros(3, 5)
BAD = {
    "not a tensor": (([[1.0]], torch.tensor([0])), {}, TypeError, "scores"),
    "one dimension": ((torch.zeros(5), torch.tensor([0])), {}, ValueError, "scores"),
    "no candidate": ((torch.zeros(3, 0), torch.tensor([0, 0, 0])), {}, ValueError, "scores"),
    "complex": ((torch.zeros(1, 2, dtype=torch.complex64), torch.tensor([0])), {}, TypeError, "scores"),
    "target above": ((SCORES, torch.tensor([0, 5, 0])), {}, IndexError, r"target.*\[0, 5\).*task 1 has column 5"),
    "target negative": ((SCORES, torch.tensor([0, 0, -1])), {}, IndexError, "target.*task 2 has column -1"),
    "target float": ((SCORES, torch.tensor([0.0, 1.0, 2.0])), {}, TypeError, "target.*float32"),
    "target bool": ((SCORES, torch.tensor([True, False, True])), {}, TypeError, "target.*bool"),
    "target short": ((SCORES, torch.tensor([0, 1])), {}, ValueError, r"target.*\(3,\).*\(2,\)"),
    "target (B, 1)": ((SCORES, torch.tensor([[0], [1], [2]])), {}, ValueError, "target.*list of lists"),
    "target (2, 1), B = 2": ((SCORES[:2], torch.tensor([[0], [1]])), {}, ValueError, "target.*tuple"),
    "target (3, 2)": ((SCORES, torch.zeros(3, 2, dtype=torch.int64)), {}, ValueError, "target"),
    "target 0-d": ((SCORES, torch.tensor(1)), {}, ValueError, "target"),
    "target a number": ((SCORES, 1), {}, TypeError, "target"),
    "target row above": ((SCORES, torch.tensor([[0, 3], [0, 0]])), {}, IndexError, "target.*task 1.*row 3"),
    "target row negative": ((SCORES, torch.tensor([[-1, 0], [0, 0]])), {}, IndexError, "target.*row -1"),
    "target of no row": ((SCORES[:0], torch.tensor([[0], [0]])), {}, IndexError, "target"),
    "target tuple uneven": ((SCORES, (torch.tensor([0]), torch.tensor([0, 1]))), {}, ValueError, "target"),
    "target tuple float": ((SCORES, (torch.tensor([0]), torch.tensor([0.0]))), {}, TypeError, "target"),
    "wrong device": ((SCORES, torch.arange(3, device="meta")), {}, ValueError, "target.*device.*cpu"),
    "backend": ((SCORES, torch.arange(3)), {"backend": "fast"}, ValueError, "backend must be one of 'auto', .*'fast'"),
}
BAD_EXCLUDE = {
    "column above": (torch.tensor([[0], [5]]), IndexError, "exclude.*5"),
    "column negative": (torch.tensor([[0], [-1]]), IndexError, "exclude"),
    "row": (torch.tensor([[3], [0]]), IndexError, "exclude"),
    "float": (torch.zeros(2, 1), TypeError, "exclude.*float32"),
    "(3, P)": (torch.zeros(3, 1).long(), ValueError, "exclude"),
    "string": ("all", TypeError, "exclude"),
    "mask shape": (torch.zeros(5, 3).bool(), ValueError, r"exclude.*\(3, 5\)"),
    "restriction shape": (torch.zeros(3).bool(), ValueError, "exclude"),
    "restricted target": (torch.tensor([0, 1, 0, 0, 0]).bool(), ValueError, "target.*column 1 of task 1"),
    "other queries": (KnownAnswers([0], [1])(torch.arange(2)), ValueError, "exclude.*3"),
    "index too wide": (KnownAnswers([0], [5])(torch.arange(3)), IndexError, "exclude.*5"),
    "elsewhere": (torch.zeros(5, dtype=torch.bool, device="meta"), ValueError, "exclude.*device"),
    "pairs elsewhere": (torch.zeros(2, 1, dtype=torch.int64, device="meta"), ValueError, "exclude.*device"),
}
BAD |= {
    f"exclude {name}": ((SCORES, torch.arange(3)), {"exclude": exclude}, error, message)
    for name, (exclude, error, message) in BAD_EXCLUDE.items()
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    args, keywords, error, message = BAD[case]
    with pytest.raises(error, match=message):
        rank_scores(*args, **keywords)
