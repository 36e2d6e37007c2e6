"""Types of what users call: no ``Any`` but where the host's own signature is open."""

import ast
import importlib
import inspect
import pickle
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest

import torchrankmetrics
from torchrankmetrics import HitsAtK, RankMetric
from torchrankmetrics.metrics.metric import HostOptions
from torchrankmetrics.metrics.named import NamedMetric
from torchrankmetrics.metrics.registry import all_names
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION

SHALLOW = ("audit", "datasets", "definitions", "inference", "plots", "study")
STARS = ("*args", "**kwargs")
# what torchmetrics and PyKEEN leave open: keywords that go on to them, and methods that are theirs
HOSTS = {
    *(
        f"metrics.{name}.forward {part}"
        for name in ("metric.RankMetric", "collection.RankCollection")
        for part in STARS
    ),
    *(f"metrics.metric.RankMetric.sync_context {part}" for part in STARS),
    "metrics.metric.RankMetric.merge_state incoming_state",
    *(f"metrics.metric.RankMetric.plot {part}" for part in ("val", "ax", "return")),
    *(f"integrations.pykeen_evaluator.RankCollectionEvaluator.evaluate {part}" for part in STARS),
    "integrations.pykeen_evaluator.RankCollectionEvaluator.__init__ *args",
    *(f"integrations.pykeen.SampledRankCollectionEvaluator.__init__ {part}" for part in STARS),
    "integrations.pykeen_results.RankResults.to_dict return",
    "metrics.state.RowBuffer.gathered group",
}


def public() -> Iterator[tuple[str, object]]:
    yield from ((name, getattr(torchrankmetrics, name)) for name in torchrankmetrics.__all__)
    modules = [f"torchrankmetrics.{name}" for name in SHALLOW]
    folder = str(Path(torchrankmetrics.__file__).parent / "integrations")
    modules += [f"torchrankmetrics.integrations.{module.name}" for module in pkgutil.iter_modules([folder])]
    for name in modules:
        module = importlib.import_module(name)
        for key, value in vars(module).items():
            if not key.startswith("_") and getattr(value, "__module__", "").startswith("torchrankmetrics."):
                yield key, value


@cache
def signatures() -> dict[str, tuple[ast.FunctionDef, dict[str, Any]]]:
    """Every function of ours that a public name leads to, as it is written, and the names it is written in."""
    found: dict[str, tuple[ast.FunctionDef, dict[str, Any]]] = {}
    values = [value for _, value in public()]
    for value in values:  # and what these return
        members = [value]
        if inspect.isclass(value):
            for kind in value.__mro__:
                if is_ours(kind):
                    members += [m for key, m in vars(kind).items() if key in ("__init__", "__call__") or key[0] != "_"]
        for member in members:
            member = getattr(member, "fget", None) or getattr(member, "__func__", member)
            function = inspect.unwrap(member) if callable(member) else member
            if inspect.isfunction(function) and function.__module__.startswith("torchrankmetrics."):
                name = f"{function.__module__.removeprefix('torchrankmetrics.')}.{function.__qualname__}"
                try:
                    (node,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
                except (OSError, SyntaxError):  # what dataclasses write
                    continue
                if isinstance(node, ast.FunctionDef):
                    names = {**typed_names(function.__module__), **function.__globals__}
                    found[name] = node, names
                    returned = [names.get(one) for one in names_in(node.returns)]
                    values += [one for one in returned if inspect.isclass(one) and is_ours(one) and one not in values]
    return found


@cache
def typed_names(module: str) -> dict[str, Any]:
    """What a module imports for type checkers, and perhaps for them alone."""
    source = inspect.getsource(importlib.import_module(module))
    lines = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    there = ((alias, importlib.import_module(line.module or "")) for line in lines for alias in line.names)
    return {alias.asname or alias.name: getattr(home, alias.name, None) for alias, home in there}


def is_any(value: object) -> bool:
    """Whether a type, or one that it is made of, is ``Any``: an alias may hide it.

    Arrays may be of any dtype, and metrics of any kind of sample.
    """
    if isinstance(value, list):  # what a function takes
        return any(map(is_any, value))
    home = getattr(get_origin(value), "__module__", "")
    return value is Any or (not home.startswith(("numpy", "torchrankmetrics")) and any(map(is_any, get_args(value))))


def names_in(annotation: ast.AST | None) -> Iterator[str]:
    """Names in an annotation, but not those of the dtypes of arrays."""
    match annotation:
        case ast.Name(id=name):
            yield name
        case ast.Constant(value=str(text)):
            yield from names_in(ast.parse(text))
        case ast.Subscript(value=ast.Attribute(attr="NDArray")) | None:
            return
        case _:
            for part in ast.iter_child_nodes(annotation):
                yield from names_in(part)


def is_ours(kind: type) -> bool:
    return kind.__module__.startswith("torchrankmetrics.")


def has_any(annotation: ast.expr | None, names: dict[str, Any]) -> bool:
    return any(is_any(names.get(name)) for name in names_in(annotation))


def open_parts(node: ast.FunctionDef, names: dict[str, Any]) -> Iterator[str]:
    arguments = node.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if has_any(argument.annotation, names):
            yield argument.arg
    for stars, argument in (("*", arguments.vararg), ("**", arguments.kwarg)):
        if argument is not None and has_any(argument.annotation, names):
            yield stars + argument.arg
    if has_any(node.returns, names):
        yield "return"


def test_counts_are_candidate_counts() -> None:
    said = {
        ast.unparse(argument.annotation or argument)
        for node, _ in signatures().values()
        for argument in (*node.args.args, *node.args.kwonlyargs)
        if argument.arg == "counts"
    }
    assert said - {"Tensor"} == {"npt.ArrayLike | CandidateCounts"}  # tensors count better candidates


def test_no_public_signature_has_any_but_what_a_host_leaves_open() -> None:
    found = {f"{name} {part}" for name, read in signatures().items() for part in open_parts(*read)}
    assert found == HOSTS


METRIC_CLASSES = [
    found
    for name in torchrankmetrics.__all__
    if inspect.isclass(found := getattr(torchrankmetrics, name))
    and issubclass(found, RankMetric)
    and found is not RankMetric
]


@pytest.mark.parametrize("kind", METRIC_CLASSES, ids=lambda kind: kind.__name__)
def test_the_signature_of_a_metric_class_has_all_arguments_that_it_accepts(kind: type[RankMetric]) -> None:
    parameters = inspect.signature(kind).parameters
    assert all(one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY) for one in parameters.values())
    number = {name: 3 for name, one in parameters.items() if one.default is one.empty}
    given = {name: one.default for name, one in parameters.items()} | number
    assert kind(**given).key == kind(**number).key
    wanted = {*list(inspect.signature(RankMetric).parameters)[1:-1], *HostOptions.__annotations__}
    assert parameters.keys() - {"k", "p"} <= wanted
    other = {"view": "normalized", "rank_type": "optimistic", "side": "tail", "average": "macro", "storage": "counts"}
    other |= {"expectation": DEFAULT_EXPECTATION, "process_group": None, "dist_sync_fn": print}
    other |= {"distributed_available_fn": bool}
    for name in wanted - parameters.keys():
        with pytest.raises(ValueError, match=f"but {name}="):
            kind(**number, **{name: "base"})
    for name in wanted & parameters.keys():
        if not (name == "view" and kind(**number).higher_is_better is None):
            assert kind(**number, **{name: other.get(name, True)}).key
    with pytest.raises((TypeError, ValueError), match="wheels"):
        kind(**number, wheels=4)


@pytest.mark.parametrize("kind", METRIC_CLASSES, ids=lambda kind: kind.__name__)
def test_the_help_of_a_metric_class_has_arguments_input_output_and_an_example(kind: type[RankMetric]) -> None:
    text = inspect.getdoc(kind) or ""
    args, rest = text.split("Args:\n")[1].split("As input to ``update`` the metric accepts:\n")
    assert all(re.search(rf"^ +(.*, )?{name}\b", args, re.MULTILINE) for name in inspect.signature(kind).parameters)
    outputs, example = rest.split("As output of ``compute`` the metric returns:\n")[1].split("Example:\n")
    assert "value (Tensor): 0-d float64" in outputs
    assert f">>> from torchrankmetrics import {kind.__name__}\n" in example


@pytest.mark.parametrize("name", ["evaluate", "compare"])
def test_the_signature_of_a_function_fits_on_a_screen(name: str) -> None:
    assert len(str(inspect.signature(getattr(torchrankmetrics, name)))) < 1200


def test_metric_classes_are_in_the_registry_and_can_be_inherited_and_pickled() -> None:
    names = {kind.metric_name for kind in METRIC_CLASSES if issubclass(kind, NamedMetric)}
    assert {name for name in names if not re.match("amr|adjusted_|z_", name)} <= all_names().keys()

    class Own(HitsAtK):
        """Hits at 3."""

        def __init__(self) -> None:
            super().__init__(3)

    assert not inspect.signature(Own).parameters
    assert Own().key == "hits_at_3"
    assert pickle.loads(pickle.dumps(HitsAtK(3, side="tail"))).key == "tail_hits_at_3"
