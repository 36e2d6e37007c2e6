"""Make the data files of this package from the triples themselves.

    python -m benchmarks.make_datasets CHECKOUTS [--only NAME ...] [--out FOLDER]

CHECKOUTS has a clone of every repository of ``benchmarks/graph_sources.py`` as ``owner/name``; what is read is the
commit named there, wherever the clone stands. The files of PyKEEN come from the package that is installed. The checksum
of a split is the SHA-256 of its triples as lines "head TAB relation TAB tail LF" of labels, sorted by code point,
UTF-8: any copy of the data set can be compared with it.
"""

import argparse
import hashlib
import importlib.util
import io
import json
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from benchmarks.graph_sources import GraphSource, sources

from torchrankmetrics.datasets.facts import ENTITIES, SPLITS
from torchrankmetrics.datasets.triple_files import Triple, number_triples
from torchrankmetrics.protocols.histograms import candidate_histogram
from torchrankmetrics.sides import ENTITY_SIDES

_DATA = Path(__file__).parent.parent / "src" / "torchrankmetrics" / "datasets" / "data"
_SEEDS = 0.3  # of the aligned pairs, by the convention of all users of DBP15K


def checksum(triples: Iterable[tuple[str, ...]]) -> str:
    """SHA-256 of triples, or pairs, as sorted lines of labels."""
    lines = sorted("\t".join(triple) + "\n" for triple in triples)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def read_file(source: GraphSource, path: str, checkouts: Path) -> str:
    """Text of a file of a repository at its commit, or of PyKEEN."""
    if source.repository == "pykeen":
        spec = importlib.util.find_spec("pykeen")
        assert spec is not None, "PyKEEN is not installed"
        assert spec.origin is not None
        return (Path(spec.origin).parent / "datasets" / path).read_text(encoding="utf-8")
    path, _, member = path.partition(":")
    command = ["git", "-C", str(checkouts / source.repository), "show", f"{source.commit[0]}:{path}"]
    content = subprocess.run(command, check=True, capture_output=True).stdout
    if member:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            file = archive.extractfile(member)
            assert file is not None, f"{path} has no file {member}"
            content = file.read()
    return content.decode("utf-8")


def read_split(source: GraphSource, split: str, checkouts: Path) -> list[Triple]:
    """The triples of a split as labels, in the order of the files."""
    triples: list[Triple] = []
    for path in source.files[split]:
        lines = [line for line in read_file(source, path, checkouts).split("\n") if line.strip()]
        if source.layout == "OpenKE":
            folder = path[: path.rindex("/") + 1] if "/" in path else ""
            entity, relation = (
                _openke_labels(source, f"{folder}{of}2id.txt", checkouts) for of in ("entity", "relation")
            )
            assert int(lines[0]) == len(lines) - 1, f"{path} says {lines[0]} triples"
            ids = [line.split() for line in lines[1:]]
            triples += [(entity[h], relation[r], entity[t]) for h, t, r in ids]
            continue
        for line in lines:
            first, second, third = line.rstrip("\r").split(source.separator)
            triples.append((first, third, second) if source.layout == "head tail relation" else (first, second, third))
    return triples


def facts_of(source: GraphSource, checkouts: Path) -> dict[str, object]:
    """Everything the data file of a graph holds."""
    facts = {
        "title": source.title,
        "synonyms": list(source.synonyms),
        "source": _origin(source),
        "licence": source.licence,
        "protocol": source.protocol,
    }
    if source.layout == "pairs":
        return facts | _facts_of_pairs(source, checkouts)
    labelled = {split: read_split(source, split, checkouts) for split in SPLITS if split in source.files}
    return facts | facts_of_triples(labelled)


def facts_of_triples(labelled: dict[str, list[Triple]]) -> dict[str, object]:
    """Sizes, checksums and histograms of a graph; "train" is written where it differs from "all"."""
    graph = number_triples(labelled)
    histograms = []
    for number, split in enumerate(labelled):
        known = list(labelled)[: number + 1]
        for side in ENTITY_SIDES:
            found = [
                candidate_histogram(
                    graph.splits, split, known, side, entities=entities, num_entities=len(graph.entities)
                )
                for entities in ENTITIES
            ]
            if all(map(np.array_equal, *found)):
                del found[1]
            for entities, (numbers, count) in zip(ENTITIES, found, strict=False):
                histograms.append(_entry(split, entities, side, known, numbers.tolist(), count.tolist()))
    in_train = len(np.unique(graph.splits["train"][:, [0, 2]]))
    return {
        "num_entities": {"all": len(graph.entities), "train": in_train},
        "num_relations": len(graph.relations),
        "num_triples": {split: len(triples) for split, triples in labelled.items()},
        "checksum": {split: checksum(triples) for split, triples in labelled.items()},
        "histograms": histograms,
    }


def _facts_of_pairs(source: GraphSource, checkouts: Path) -> dict[str, object]:
    (path,) = source.files["test"]
    lines = read_file(source, path, checkouts).splitlines()
    pairs = [tuple(line.split("\t")) for line in lines]
    left, right = (len(set(column)) for column in zip(*pairs, strict=True))
    assert left == right == len(pairs), f"{path} is not one-to-one"
    tests = len(pairs) - round(_SEEDS * len(pairs))
    return {
        "num_entities": {"all": tests, "train": tests},
        "num_relations": 1,
        "num_triples": {"test": tests},
        "checksum": {"test": checksum(pairs)},
        "histograms": [_entry("test", "all", side, [], [tests], [tests]) for side in ENTITY_SIDES],
    }


def _entry(split: str, entities: str, side: str, known: list[str], numbers: list[int], count: list[int]) -> object:
    tasks = {"split": split, "entities": entities, "side": side, "known": known}
    return tasks | {"num_candidates": numbers, "count": count}


def _openke_labels(source: GraphSource, path: str, checkouts: Path) -> dict[str, str]:
    count, *lines = read_file(source, path, checkouts).splitlines()
    labels = {number: label for label, number in (line.split("\t") for line in lines)}
    assert len(labels) == int(count), f"{path} says {count} labels"
    return labels


def _origin(source: GraphSource) -> str:
    commit, date = source.commit
    if source.repository == "pykeen":
        return f"files of the pykeen {commit} wheel"
    return f"github.com/{source.repository} at {commit[:12]} ({date})"


def write(path: Path, facts: dict[str, object]) -> None:
    """Write a data file, one field and one histogram a line."""
    histograms: object = facts["histograms"]
    assert isinstance(histograms, list)
    head = [f"{json.dumps(key)}: {json.dumps(value)},\n" for key, value in facts.items() if key != "histograms"]
    lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in histograms)
    path.write_text("{" + "".join(head) + '"histograms": [\n' + lines + "\n]}\n", encoding="utf-8")


def main() -> None:
    """Make the file of every data set in ``graph_sources``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path, help="folder with a clone of every repository, as owner/name")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these data sets alone")
    parser.add_argument("--out", type=Path, default=_DATA)
    args = parser.parse_args()
    for source in sources():
        if args.only is None or source.name in args.only:
            write(args.out / f"{source.name}.json", facts_of(source, args.checkouts))
            print(f"wrote {source.name}.json")


if __name__ == "__main__":
    main()
