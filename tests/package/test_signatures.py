"""Types of what users call: no ``Any`` but where the host's own signature is open."""

import ast
import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator
from pathlib import Path

import torchrankmetrics

SHALLOW = ("audit", "datasets", "definitions", "inference", "plots", "significance")
STARS = ("*args", "**kwargs")
# what torchmetrics and PyKEEN leave open: keywords that go on to them, and methods that are theirs
HOSTS = {
    *(f"metrics.{name}.__init__ **kwargs" for name in ("metric.RankMetric", "collection.RankCollection")),
    *(f"metrics.named.{name}.__init__ **kwargs" for name in ("NamedMetric", "NamedMetricAtK", "PowerMeanRank")),
    "metrics.of_queries.QueryMetricUpToK.__init__ **kwargs",
    *(
        f"metrics.{name}.forward {part}"
        for name in ("metric.RankMetric", "collection.RankCollection")
        for part in STARS
    ),
    *(f"metrics.state.RowState.sync_context {part}" for part in STARS),
    "metrics.metric.RankMetric.merge_state incoming_state",
    *(f"metrics.metric.RankMetric.plot {part}" for part in ("val", "ax", "return")),
    *(f"integrations.pykeen_evaluator.RankCollectionEvaluator.evaluate {part}" for part in STARS),
    "integrations.pykeen_evaluator.RankCollectionEvaluator.__init__ *args",
    *(f"integrations.pykeen_sampled.SampledRankCollectionEvaluator.__init__ {part}" for part in STARS),
    "integrations.pykeen_results.RankResults.to_dict return",
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


def signatures() -> dict[str, ast.FunctionDef]:
    """Every function of ours that a public name leads to, as it is written."""
    found: dict[str, ast.FunctionDef] = {}
    for _, value in public():
        members = [value]
        if inspect.isclass(value):
            for kind in value.__mro__:
                if kind.__module__.startswith("torchrankmetrics."):
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
                    found[name] = node
    return found


def has_any(annotation: ast.expr | None) -> bool:
    nodes = [] if annotation is None else list(ast.walk(annotation))
    written = [
        ast.parse(node.value) for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    nodes += [inner for tree in written for inner in ast.walk(tree)]
    return any(isinstance(node, ast.Name) and node.id == "Any" for node in nodes)


def open_parts(node: ast.FunctionDef) -> Iterator[str]:
    arguments = node.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if has_any(argument.annotation):
            yield argument.arg
    for stars, argument in (("*", arguments.vararg), ("**", arguments.kwarg)):
        if argument is not None and has_any(argument.annotation):
            yield stars + argument.arg
    if has_any(node.returns):
        yield "return"


def test_no_public_signature_has_any_but_what_a_host_leaves_open() -> None:
    found = {f"{name} {part}" for name, node in signatures().items() for part in open_parts(node)}
    assert found == HOSTS
