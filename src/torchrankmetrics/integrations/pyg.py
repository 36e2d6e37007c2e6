"""PyTorch Geometric: ranks of KGE models and of top-k predictions, known triples of Data.

PyG itself is not imported: a model scores (heads, relations, tails), data have edge_index and
edge_type.
"""

from __future__ import annotations  # help() shows the names of types

from typing import Any

import torch
from torch import Tensor

from torchrankmetrics.kg import triples as protocol
from torchrankmetrics.kg.candidates import CandidatesByRelation
from torchrankmetrics.kg.known_triples import KnownTriples, as_triples, check_below, check_vectors
from torchrankmetrics.kg.scorers import EmbeddingScorer
from torchrankmetrics.ranking.arrays import Integers, Numbers, as_ids
from torchrankmetrics.ranking.embeddings import Candidates
from torchrankmetrics.ranking.lists import rank_lists, without_each_other
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import MOST_CANDIDATES, check_int


def rank_triples(
    model: Any,
    triples: Any,
    known: KnownTriples | None = None,
    *,
    higher_is_better: bool = True,
    candidates: Integers | CandidatesByRelation | None = None,
    batch_size: int | None = None,
    backend: str = "auto",
    progress: bool = True,
) -> RankTable:
    """Rank both sides of every triple among all nodes, for any ``KGEModel``.

    ``KGEModel.test`` ranks only tails, unfiltered, counts ranks from 0, and orders tied scores
    arbitrarily.

    DistMult, ComplEx, RotatE and TransE are ranked by their embeddings, one for each query; other
    models score triples.

    Args:
        model (Module): the model; call ``eval()`` before, if it has dropout. Triples are moved to
            its device.
        triples (Data or tuple): the test triples, in any form that ``known_triples`` takes.
        known (KnownTriples, default None): known positives to filter; None: raw ranks.
        higher_is_better (bool, default True): False for a model that returns distances.
        candidates (integers or dict, default None): ids (m,) or bool (N,) of the candidates; None:
            all. Or a dict of relation -> (heads, tails), as in ``torchrankmetrics.rank_triples``.
        batch_size (int, default None): queries scored at once; None: it grows while that is faster
            and memory allows.
        backend (str, default "auto"): "auto", "torch" or "numba"; the ranks are the same.
        progress (bool, default True): whether to show a progress bar, on a terminal only.

    Returns:
        As ``torchrankmetrics.rank_triples``: one row per side and triple, tails first, the relation
        as group.

    Raises:
        TypeError, ValueError, IndexError: as ``torchrankmetrics.rank_triples`` and
            ``known_triples``; for another model, or one with fewer nodes than the triples.

    >>> import torch
    >>> from torch_geometric.nn import TransE
    >>> from torchrankmetrics.integrations.pyg import known_triples, rank_triples
    >>> triples = torch.tensor([[0, 0], [1, 2]]), torch.tensor([0, 0])  # edge_index, edge_type
    >>> model = TransE(num_nodes=5, num_relations=1, hidden_channels=8)
    >>> table = rank_triples(model, triples, known_triples(triples, num_entities=5), progress=False)
    >>> table.ranks.num_candidates
    tensor([4, 4, 5, 5])
    """
    if not (callable(model) and hasattr(model, "num_nodes")):
        raise TypeError(
            "model must be a KGEModel of PyG, with forward and num_nodes, got "
            f"{type(model).__name__}"
        )
    parameter = next(iter(model.parameters()), None) if isinstance(model, torch.nn.Module) else None
    tasks = _as_source(triples, "triples")
    check_below(tasks[:, ::2], model.num_nodes, "triples must contain nodes of the model,")
    tasks = tasks if parameter is None else tasks.to(parameter.device)
    options: Any = {
        "higher_is_better": higher_is_better,
        "candidates": candidates,
        "batch_size": batch_size,
    }
    options |= {"backend": backend, "progress": progress}
    tails, heads = _embedding_scorers(model) if higher_is_better else (None, None)
    if tails is None:
        options |= {"score_hrt": lambda hrt: model(*hrt.unbind(1)), "num_entities": model.num_nodes}
    return protocol.rank_triples(tails, heads, tasks, known, **options)


def _embedding_scorers(model: Any) -> tuple[EmbeddingScorer, EmbeddingScorer] | tuple[None, None]:
    """Scorers of tails and heads, for models whose score is a similarity of query and node."""
    kind = type(model).__name__
    # scores of subclasses may differ
    is_own = type(model).__module__ == f"torch_geometric.nn.kge.{kind.lower()}"
    # torch has no complex numbers of other floats
    if not is_own or model.node_emb.weight.dtype not in (torch.float32, torch.float64):
        return None, None
    node = model.node_emb.weight.detach()
    relation = model.rel_emb.weight.detach()
    tail = torch.mul
    head = torch.mul
    similarity = "dot"
    if kind in ("ComplEx", "RotatE"):
        node = torch.complex(node, model.node_emb_im.weight.detach())
    if kind == "TransE" and model.p_norm in (1, 2):
        node = torch.nn.functional.normalize(node, p=model.p_norm, dim=-1)
        tail = torch.add
        head = torch.sub
        similarity = f"l{model.p_norm:.0f}"
    elif kind == "ComplEx":
        relation = torch.complex(relation, model.rel_emb_im.weight.detach())
    elif kind == "RotatE":
        relation = torch.polar(torch.ones_like(relation), relation)
        similarity = "l2"
    elif kind != "DistMult":
        return None, None
    table = Candidates(_as_real(node))
    of_tails = EmbeddingScorer(
        lambda h, r: _as_real(tail(node[h], relation[r])), table, similarity=similarity
    )
    of_heads = EmbeddingScorer(
        lambda r, t: _as_real(head(node[t], relation[r].conj())), table, similarity=similarity
    )
    return of_tails, of_heads


def _as_real(numbers: Tensor) -> Tensor:
    return torch.view_as_real(numbers).flatten(1) if numbers.is_complex() else numbers


def known_triples(*sources: Any, num_entities: int | None = None) -> KnownTriples:
    """``KnownTriples`` of PyG's ``Data``, or of the tensors in it.

    Args:
        *sources (Data or tuple): each a ``Data`` with edge_index (2, n) and edge_type (n,); splits
            under other names are pairs (data.test_edge_index, data.test_edge_type). Also (heads,
            relations, tails), each (n,), or (n, 3) integers.
        num_entities (int, default None): number of nodes; None: read from the data, else one more
            than the largest id.

    Returns:
        The index of all their triples.

    Raises:
        TypeError, IndexError: if a source is none of these, or an id is not an integer or out of
            range.
        ValueError: if sources is empty, a shape is wrong, or two data have different numbers of
            nodes.

    >>> import torch
    >>> from torchrankmetrics.integrations.pyg import known_triples
    >>> edges = torch.tensor([[0, 0], [1, 2]])
    >>> known = known_triples((edges, torch.tensor([0, 0])), num_entities=5)
    >>> known.num_candidates([[0, 0, 1]], "tail")
    tensor([4])
    """
    if not sources:
        raise ValueError(
            "sources is empty: pass Data, (edge_index, edge_type), (heads, relations, tails) or "
            "(n, 3)"
        )
    parts = [_as_source(source, f"sources[{i}]") for i, source in enumerate(sources)]
    data = [source for source in sources if hasattr(source, "edge_index")]
    # Data guesses num_nodes and warns if it is not stored
    numbers = {int(one.num_nodes) for one in data if "num_nodes" in one or "x" in one}
    if num_entities is None and len(numbers) > 1:
        raise ValueError(
            f"sources must number nodes alike, but they have {sorted(numbers)} nodes; pass "
            "num_entities"
        )
    if num_entities is None:
        num_entities = next(iter(numbers), None)
    return KnownTriples(*parts, num_entities=num_entities)


def ranks_of_predictions(
    pred_index_mat: Integers,
    edge_label_index: Integers,
    num_dst_nodes: int | None = None,
    *,
    edge_label_weight: Numbers | None = None,
) -> Ranks:
    """Compute ranks of the true edges from the input of PyG's ``LinkPred`` metrics.

    The input is the top k of every source node.

    Destinations that are not listed are tied below the list, and other true edges of the same
    source are not candidates. Without ``num_dst_nodes``, destinations that are not listed
    contribute nothing to a metric, and other true edges are candidates, as in ``ranks_of_lists``.
    The source of every edge is its query, so that ``success@k``, ``recall@k``, ``precision@k``,
    ``f1@k``, ``ndcg@k``, ``ap_cap@k`` and ``rr@k`` equal PyG's metrics.

    Args:
        pred_index_mat (integers): (B, k) integers, different destinations predicted for B sources,
            best first.
        edge_label_index (integers): (2, P) integers, or a tuple of two (P,): source row and
            destination of a true edge.
        num_dst_nodes (int, default None): number of all destinations, listed or not; for
            chance-adjusted views.
        edge_label_weight (numbers, default None): (P,) numbers; edges without a positive weight are
            ignored, as in PyG.

    Returns:
        ``Ranks`` in the order of the true edges.

    Raises:
        TypeError, ValueError, IndexError: if ids are not integers, repeated or out of range, or a
            shape is wrong.

    >>> import torch
    >>> from torchrankmetrics.integrations.pyg import ranks_of_predictions
    >>> top = torch.tensor([[4, 2, 0], [1, 3, 2]])
    >>> ranks_of_predictions(top, torch.tensor([[0, 0, 1], [0, 4, 0]]), num_dst_nodes=6)
    Ranks(optimistic=[2, 1, 4], pessimistic=[2, 1, 6], num_candidates=[5, 5, 6])
    """
    listed = as_ids(pred_index_mat, "pred_index_mat")
    if listed.ndim != 2:
        raise ValueError(f"pred_index_mat must be (B, k), got {tuple(listed.shape)}")
    size = None if num_dst_nodes is None else check_int("num_dst_nodes", num_dst_nodes, 1)
    row, column = _true_edges(edge_label_index, edge_label_weight, listed.device)
    source = torch.arange(len(listed), device=listed.device)[:, None].expand_as(listed)
    _check_edges("pred_index_mat", source.flatten(), listed.flatten(), len(listed), size)
    _check_edges("edge_label_index", row, column, len(listed), size)
    ranks = rank_lists(listed, row, column, None, size)
    return ranks if size is None else without_each_other(ranks)


def _true_edges(
    edge_label_index: Any, edge_label_weight: Any, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Read the source rows and destinations (P,) of true edges with a positive weight."""
    is_pair = isinstance(edge_label_index, tuple)
    parts = edge_label_index if is_pair else as_ids(edge_label_index, "edge_label_index")
    edges = [as_ids(part, "edge_label_index").to(device) for part in parts]
    check_vectors(edges, 2, "edge_label_index must be (2, P) or two (P,)")
    row, column = edges
    if edge_label_weight is None:
        return row, column
    weight = torch.as_tensor(edge_label_weight, device=device)
    if weight.shape != row.shape:
        raise ValueError(f"edge_label_weight must be ({len(row)},), got {tuple(weight.shape)}")
    return row[weight > 0], column[weight > 0]


def _check_edges(name: str, row: Tensor, column: Tensor, num_rows: int, size: int | None) -> None:
    """Check that rows and columns are in range, and that no edge is repeated."""
    for ids, limit in ((row, num_rows), (column, MOST_CANDIDATES if size is None else size)):
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < limit:
            raise IndexError(
                f"{name} must lie in [0, {limit}), got {int(ids.min())} to {int(ids.max())}"
            )
    if (torch.unique(torch.stack((row, column)), dim=1)).shape[1] < len(row):
        raise ValueError(f"{name} must contain no destination twice for one source")


def _as_source(source: Any, name: str) -> Tensor:
    """Triples (n, 3) int64 of a source, in every form that ``known_triples`` takes."""
    if isinstance(source, tuple) and len(source) == 2:
        index, kind = source
    elif hasattr(source, "edge_index"):
        index = source.edge_index
        kind = getattr(source, "edge_type", None)
        if kind is None:
            raise TypeError(
                f"{name} must have edge_type beside edge_index; without relations pass zeros"
            )
    else:
        return as_triples(source, name)
    index = as_ids(index, f"edge_index of {name}")
    if index.ndim != 2 or len(index) != 2:
        raise ValueError(f"edge_index of {name} must be (2, n), got {tuple(index.shape)}")
    return as_triples(
        (index[0], as_ids(kind, f"edge_type of {name}").to(index.device), index[1]), name
    )
