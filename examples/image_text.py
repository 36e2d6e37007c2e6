"""Image-text retrieval in both directions: every image has five captions, every caption one image.

python examples/image_text.py [--images 1000] [--dim 64]

The embeddings are generated: a caption is its image with noise. R@k of this field is success at k:
whether one of the captions of an image is among the first k. From text to image there is one
relevant item, so success, recall and hits are equal. Image to text is the side "tail", text to
image the side "head".
"""

import argparse

import torch

from torchrankmetrics import RankCollection

CAPTIONS = 5


def main() -> None:
    """Score all pairs once, and rank rows and columns of the same matrix."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--dim", type=int, default=64)
    given = parser.parse_args()

    torch.manual_seed(0)
    images = torch.randn(given.images, given.dim)
    image_of = torch.arange(given.images).repeat_interleave(CAPTIONS)  # of every caption
    captions = images[image_of] + 2.0 * torch.randn(len(image_of), given.dim)
    scores = images @ captions.T

    metrics = ["success@1", "success@5", "success@10", "ap", "r_precision"]
    collection = RankCollection(metrics, sides=("tail", "head"))
    collection.update(scores, torch.arange(len(image_of)).view(-1, CAPTIONS).tolist(), side="tail")
    collection.update(scores.T, image_of, side="head")
    print(collection.summary())


if __name__ == "__main__":
    main()
