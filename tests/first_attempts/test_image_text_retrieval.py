"""Images and captions, five captions for each image, in both directions, against a sort."""

import numpy as np
import pytest
import torch

from torchrankmetrics import RankCollection, evaluate, rank_embeddings

IMAGES = 20
_generator = torch.Generator().manual_seed(0)
_images = torch.randn(IMAGES, 16, generator=_generator)
_captions = _images.repeat_interleave(5, 0) + torch.randn(5 * IMAGES, 16, generator=_generator)
IMAGE, TEXT = (torch.nn.functional.normalize(part) for part in (_images, _captions))
CAPTIONS = [list(range(5 * image, 5 * image + 5)) for image in range(IMAGES)]
IMAGE_OF = torch.arange(5 * IMAGES) // 5


def first_places(similarity, relevant):
    """Place of the first relevant column of each row, from 1."""
    order = (-similarity.numpy()).argsort(1, kind="stable")
    return np.array([1 + min(np.flatnonzero(np.isin(row, own))) for row, own in zip(order, relevant, strict=True)])


def test_recall_of_both_directions():
    similarity = IMAGE @ TEXT.T
    metrics = RankCollection(["success@1", "success@5", "MedR", "MeanR"], sides=("i2t", "t2i"))
    metrics.update(similarity, CAPTIONS, side="i2t")
    metrics.update(similarity.T, IMAGE_OF, side="t2i")
    values = {key: value.item() for key, value in metrics.compute().items()}
    for side, matrix, relevant in (("i2t", similarity, CAPTIONS), ("t2i", similarity.T, IMAGE_OF[:, None].tolist())):
        places = first_places(matrix, relevant)
        assert values[f"{side}_success_at_1"] == pytest.approx((places <= 1).mean())
        assert values[f"{side}_success_at_5"] == pytest.approx((places <= 5).mean())
        assert values[f"{side}_first_median_rank"] == np.median(places)
        assert values[f"{side}_first_mr"] == pytest.approx(places.mean())


def test_embeddings_without_the_matrix():
    places = first_places(IMAGE @ TEXT.T, CAPTIONS)
    values = evaluate(rank_embeddings(IMAGE, TEXT, CAPTIONS, similarity="cosine"), metrics=["success@1", "MedR"])
    assert values == pytest.approx({"success_at_1": (places <= 1).mean(), "first_median_rank": np.median(places)})


def test_errors_name_the_right_spelling():
    with pytest.raises(ValueError, match=r"success_at_1.*R@1 of image-text retrieval"):
        evaluate(IMAGE @ TEXT.T, CAPTIONS, metrics=["R@1"])
    with pytest.raises(ValueError, match=r"rank_embeddings\(queries, candidates, target\)"):
        evaluate(IMAGE, TEXT, metrics=["success@1"])
    with pytest.raises(ValueError, match=r"target\.tolist\(\)"):
        rank_embeddings(IMAGE, TEXT, torch.tensor(CAPTIONS))
