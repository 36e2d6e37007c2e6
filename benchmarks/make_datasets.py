"""Make the data files of this package from the triples themselves.

    python -m benchmarks.make_datasets GRAPHS [--out FOLDER]

GRAPHS has a folder per data set (``fb15k237``, ...) with train.tsv, valid.tsv and test.tsv: head, relation and tail in
a line, as labels, or as line numbers (from 0) of entities.txt and relations.txt where those files are there. The
checksum of a split is the SHA-256 of its triples as lines "head TAB relation TAB tail LF" of labels, sorted by code
point, UTF-8: any copy of the data set can be compared with it.
"""

import argparse
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from torchrankmetrics.datasets.facts import ENTITIES, KNOWN, SPLITS
from torchrankmetrics.datasets.files import Triple, number_triples, read_triples
from torchrankmetrics.datasets.histograms import candidate_histogram
from torchrankmetrics.sides import ENTITY_SIDES

_PYKEEN = ("files of the pykeen 1.11.1 wheel", "MIT (PyKEEN)")
_CONVE = "github.com/TimDettmers/ConvE"
_DATA = Path(__file__).parent.parent / "src" / "torchrankmetrics" / "datasets" / "data"
DATASETS = {
    "countries_s1": ("Countries S1", _CONVE, "MIT (ConvE)"),
    "fb15k237": ("FB15k-237", _CONVE, "MIT (ConvE); derived from Freebase, CC BY"),
    "kinships": ("Kinships", *_PYKEEN),
    "nations": ("Nations", *_PYKEEN),
    "umls": ("UMLS", *_PYKEEN),
    "wn18rr": ("WN18RR", _CONVE, "MIT (ConvE); derived from WordNet, WordNet licence"),
}


def checksum(triples: Iterable[Triple]) -> str:
    """SHA-256 of triples as sorted lines of labels."""
    lines = sorted("\t".join(triple) + "\n" for triple in triples)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def facts_of(folder: Path, title: str, source: str, licence: str) -> dict[str, object]:
    """Everything the data file of a folder of triples holds."""
    labelled: dict[str, list[Triple]] = {split: read_triples(folder / f"{split}.tsv") for split in SPLITS}
    if (folder / "entities.txt").exists():
        entity, relation = (
            (folder / name).read_text(encoding="utf-8").split("\n") for name in ("entities.txt", "relations.txt")
        )
        labelled = {
            split: [(entity[int(h)], relation[int(r)], entity[int(t)]) for h, r, t in triples]
            for split, triples in labelled.items()
        }
    graph = number_triples(labelled)
    histograms = []
    for split in SPLITS:
        for entities in ENTITIES:
            for side in ENTITY_SIDES:
                numbers, count = candidate_histogram(
                    graph.splits, split, KNOWN[split], side, entities=entities, num_entities=len(graph.entities)
                )
                histograms.append(
                    {
                        "split": split,
                        "entities": entities,
                        "side": side,
                        "known": list(KNOWN[split]),
                        "num_candidates": numbers.tolist(),
                        "count": count.tolist(),
                    }
                )
    in_train = len(np.unique(graph.splits["train"][:, [0, 2]]))
    return {
        "title": title,
        "source": source,
        "licence": licence,
        "num_entities": {"all": len(graph.entities), "train": in_train},
        "num_relations": len(graph.relations),
        "num_triples": {split: len(triples) for split, triples in labelled.items()},
        "checksum": {split: checksum(triples) for split, triples in labelled.items()},
        "histograms": histograms,
    }


def write(path: Path, facts: dict[str, object]) -> None:
    """Write a data file, one field and one histogram a line."""
    histograms: object = facts["histograms"]
    assert isinstance(histograms, list)
    head = [f"{json.dumps(key)}: {json.dumps(value)},\n" for key, value in facts.items() if key != "histograms"]
    lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in histograms)
    path.write_text("{" + "".join(head) + '"histograms": [\n' + lines + "\n]}\n", encoding="utf-8")


def main() -> None:
    """Make the file of every data set in ``DATASETS``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", type=Path, help="folder with a folder of triples for each data set")
    parser.add_argument("--out", type=Path, default=_DATA)
    args = parser.parse_args()
    for name, (title, source, licence) in DATASETS.items():
        write(args.out / f"{name}.json", facts_of(args.graphs / name, title, source, licence))
        print(f"wrote {name}.json")


if __name__ == "__main__":
    main()
