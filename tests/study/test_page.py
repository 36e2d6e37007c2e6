"""The page of a study stands alone, and is what the ranks say; who changes either is found out."""

import hashlib
import html
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from html_pages import Page
from studies import study_of, table_of
from torchrankmetrics import RankDefinition, RankMetric, RankTable
from torchrankmetrics.cli import main
from torchrankmetrics.study import RankStudy, verify

pytest.importorskip(
    "matplotlib", reason="the page has figures: pip install 'torchrankmetrics[plot]'"
)
PATTERN = "{dataset}/{model}/{seed}.npz"
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of three models on three data sets with two seeds, and their page."""
    path = tmp_path_factory.mktemp("study")
    study = study_of(seeds=2)
    study.save(path / "runs" / PATTERN)
    study.report(path / "report.html", ["mrr", "hits@10"], title="Three <models> & more")
    return path


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(folder, tmp_path / "copy")
    return tmp_path / "copy"


def test_the_page_needs_nothing_but_itself(folder: Path) -> None:
    text = (folder / "report.html").read_text()
    page = Page(text)
    assert page.open == []
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    links = [value for name, value in page.attributes if name in ("src", "href", "xlink:href")]
    assert links
    assert all(value.startswith("#") and value[1:] in ids for value in links)
    assert set(re.findall(r"url\((.)", text)) <= {"#"}
    assert "@import" not in text
    assert "<title>Three &lt;models&gt; &amp; more</title>" in text
    assert text.count("<svg") == 2 + 2 + 3  # values, ranks and differences, distributions


def test_the_page_is_the_same_each_time_with_the_numbers_of_the_table(folder: Path) -> None:
    study, text = RankStudy.open(folder / "runs" / PATTERN), (folder / "report.html").read_text()
    study.arrange(["a", "b", "c"], ["small", "middle", "large"])
    assert study.report(metrics=["mrr", "hits@10"], title="Three <models> & more") == text
    for cell in study.table(["mrr", "hits@10"]).cells.values():
        assert f"{cell.value:.3f} [{cell.low:.3f}, {cell.high:.3f}]" in text


def test_a_missing_table_is_found(copy: Path) -> None:
    (copy / "runs" / "small" / "a" / "0.npz").unlink()
    found = verify(copy / "report.html", copy / "runs")
    assert [one[:2] for one in found.differences] == [("files: a small 0", "small/a/0.npz")]
    assert "No number was computed again" in str(found)


def manifest_in(page: Path) -> Any:
    (found,) = re.findall(r'id="rank-manifest">(.*?)</script>', page.read_text())
    return json.loads(found)


def forge(page: Path, manifest: Any) -> None:
    """Put another manifest into a page, written as ``report`` writes it."""
    written = json.dumps(manifest).replace("<", "\\u003c")
    pattern = r'(id="rank-manifest">).*?(</script>)'
    page.write_text(re.sub(pattern, lambda match: match[1] + written + match[2], page.read_text()))


def numbers_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers_in(inner, (*path, key))
    elif isinstance(value, int | float):
        yield path


def change(manifest: Any, path: tuple[Any, ...]) -> None:
    for key in path[:-1]:
        manifest = manifest[key]
    old, last = manifest[path[-1]], path[-1]
    if isinstance(old, float):
        manifest[last] = old + (2e-3 if last == "p_best" else 1e-8 * max(1.0, abs(old)))
    else:
        manifest[last] = (
            not old if isinstance(old, bool) else old + (1 if isinstance(old, int) else "0")
        )


def test_a_changed_number_of_every_kind_is_found(copy: Path) -> None:
    page = copy / "report.html"
    manifest = manifest_in(page)
    paths = [path for path in numbers_in(manifest) if path[0] in ("files", "tables")]
    kinds = {tuple(key for key in path if isinstance(key, str)): path for path in paths}
    there = {kind[1] for kind in kinds}
    assert {"protocol", "values", "values mrr", "averages", "ranks", "differences"} <= there
    assert len(kinds) > 40
    for path in kinds.values():
        change(manifest, path)
    forge(page, manifest)
    assert len(verify(page, copy / "runs").differences) == len(kinds)


@pytest.mark.parametrize(
    ("path", "where"),
    [
        (("options", "confidence_level"), "tables: values: mrr a small: low"),
        (("files", 3, "sha256"), "files: b small 1: sha256"),
        (("versions", "torchrankmetrics"), "versions: torchrankmetrics"),
        (("notes", "values", 0), "notes: values: 1"),
    ],
)
def test_a_single_changed_entry_is_found(path: tuple[Any, ...], where: str, copy: Path) -> None:
    manifest = manifest_in(copy / "report.html")
    if path == ("options", "confidence_level"):
        manifest["options"]["confidence_level"] = 0.9
    else:
        change(manifest, path)
    forge(copy / "report.html", manifest)
    found = verify(copy / "report.html", copy / "runs")
    assert not found
    assert found.num_files == 18
    assert found.num_numbers > 18 * 8
    assert where in {where for where, *_ in found.differences}
    assert ("Only versions differ" in str(found)) == (path[0] == "versions")


def test_a_page_has_one_manifest(copy: Path) -> None:
    page = copy / "report.html"
    text = page.read_text()
    (own,) = re.findall(r"<script[^>]*rank-manifest.*?</script>", text)
    for second in (
        own,
        own.replace("script", "SCRIPT").replace('"rank-manifest"', "'rank-manifest'"),
    ):
        page.write_text(text.replace("</body>", second + "</body>"))
        with pytest.raises(
            ValueError, match=r"must have one manifest, as RankStudy\.report writes it, got 2"
        ):
            verify(page, copy / "runs")
    page.write_text(text.replace(own, ""))
    with pytest.raises(
        ValueError, match=r"must have one manifest, as RankStudy\.report writes it, got 0"
    ):
        verify(page, copy / "runs")
    # JSON takes the last
    page.write_text(text.replace('"manifest": 4,', '"manifest": 4, "models": ["forged"],'))
    with pytest.raises(ValueError, match=r"it is not as RankStudy\.report writes it"):
        verify(page, copy / "runs")


def test_the_manifest_has_the_digests_that_others_compute(folder: Path) -> None:
    """The digest of docs/study.md, by hand."""
    for file in manifest_in(folder / "report.html")["files"]:
        rows = RankTable.load(folder / "runs" / file["file"]).rows.tolist()
        # all have sample ids here: by side, then sample id
        ordered = sorted(rows, key=lambda row: (row[3], row[5]))
        content = b"".join(
            value.to_bytes(8, "little", signed=True) for row in ordered for value in row
        )
        assert file["sha256"] == hashlib.sha256(content).hexdigest()
        assert file["protocol"]["tasks"] == len(rows)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda manifest: manifest.update(manifest=3), "has version 3; this library reads 4"),
        (lambda manifest: manifest.pop("tables"), "is damaged: KeyError('tables')"),
        (
            lambda manifest: manifest["files"][0].update(file="../../etc/passwd"),
            "must be a path below the folder",
        ),
        (
            lambda manifest: manifest["options"].update(metrics=["own"]),
            "which is user-defined: pass it in metrics=",
        ),
    ],
)
def test_damaged_manifests_are_bad_input(
    spoil: Any, message: str, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = manifest_in(copy / "report.html")
    spoil(manifest)
    forge(copy / "report.html", manifest)
    assert main(["verify", str(copy / "report.html"), str(copy / "runs")]) == 2
    assert message in capsys.readouterr().err


def test_verify_on_the_command_line(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["verify", str(copy / "report.html"), str(copy / "runs")]
    assert main(arguments) == 0
    output = capsys.readouterr().out
    assert "18 files" in output
    assert "not its displayed text and figures" in output
    table = RankTable.load(copy / "runs" / "small" / "c" / "0.npz")
    table.rows[table.rows[:, 0].argmax(), 0] -= 1
    table.save(copy / "runs" / "small" / "c" / "0.npz")
    assert main(arguments) == 1
    output = capsys.readouterr().out
    assert re.findall(r"(\S.*): sha256", output) == ["files: c small 0"]
    assert "tables: values: mrr c small: value" in output
    for bad in ([copy / "runs", copy], [copy / "report.html", copy / "nowhere"]):
        assert main(["verify", *map(str, bad)]) == 2


def test_metrics_without_a_name_are_given_to_verify_as_they_were_to_report(tmp_path: Path) -> None:
    dcg = RankDefinition("my_dcg", f=lambda r: 1 / torch.log2(1 + r))
    requested = [dcg, RankMetric(dcg, side="tail"), "mrr"]
    study = study_of(datasets=("small",))
    study.save(tmp_path / PATTERN)
    study.report(tmp_path / "report.html", requested, "adjusted_index")
    with pytest.raises(
        ValueError, match="'adjusted_my_dcg', which is user-defined: pass it in metrics="
    ):
        verify(tmp_path / "report.html", tmp_path)
    assert verify(tmp_path / "report.html", tmp_path, metrics=requested)


def test_a_page_of_unequal_models(tmp_path: Path) -> None:
    """One dataset, models on other candidates, missing cells, markup as names: the page warns."""
    study = study_of(datasets=("small", "middle"))
    odd = table_of("a", "small", 1)
    odd.rows[:, 2] += 1
    study.add(odd, model="<odd> \u202e", dataset="small")
    for seed, model in enumerate("def", 1):
        study.add(table_of("b", "small", seed), model=model, dataset="small")
    study.save(tmp_path / PATTERN)
    study.report(tmp_path / "report.html", ["mrr", "tie_rate", "median_rank"])
    text = (tmp_path / "report.html").read_text()
    assert "differ in num_candidates" in text
    assert "is missing on middle" in text
    assert "Not drawn: f." in text  # of seven
    assert "<odd>" not in text
    assert Page(text).open == []
    assert verify(tmp_path / "report.html", tmp_path)


# --- a browser
# ----------------------------------------------------------------------------------------------

# the layout inside the frame, sent to the page around it
PROBE = """<script>
const wide = [...document.querySelectorAll("body > *, section > *, figure > svg")].filter(
  e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1);
const small = [...document.querySelectorAll("svg text")]
  .map(e => e.getBoundingClientRect().height).filter(h => h < 7);
const found = {width: document.documentElement.clientWidth,
  scroll: document.documentElement.scrollWidth,
  wide: wide.map(e => e.outerHTML.slice(0, 80)), small: small.length,
  svg: document.querySelectorAll("svg").length,
  paper: getComputedStyle(document.body).backgroundColor,
  ink: getComputedStyle(document.body).color,
  filter: getComputedStyle(document.querySelector("figure svg")).filter,
  drawn: [...document.querySelectorAll("figure svg")]
    .every(e => e.getBoundingClientRect().height > 50)};
parent.postMessage(JSON.stringify(found).replaceAll("<", ""), "*");
</script>"""


AROUND = """<body>FRAMES<script>
addEventListener("message", e => document.body.insertAdjacentHTML(
  "beforeend", "<pre class=probe>" + e.data + "</pre>"))
</script></body>"""


def seen(page: Path, *widths: int, dark: bool = False) -> Any:
    """The page in frames: the window of the browser itself is never narrower than 500."""
    (page.parent / "inner.html").write_text(page.read_text().replace("</body>", PROBE + "</body>"))
    outer = page.parent / "outer.html"
    frames = "".join(
        f'<iframe src=inner.html width={width} height=900 style="border:0"></iframe>'
        for width in widths
    )
    outer.write_text(AROUND.replace("FRAMES", frames))
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [
        "--virtual-time-budget=5000",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
    ]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom", outer.as_uri()]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    found = [
        json.loads(html.unescape(text))
        for text in re.findall(r'<pre class="probe">(.*?)</pre>', result.stdout)
    ]
    assert len(found) == len(widths), result.stdout[-500:]
    return sorted(found, key=lambda one: one["width"])


def brightness(color: str) -> int:
    return sum(map(int, re.findall(r"\d+", color)[:3]))


@pytest.mark.skipif(BROWSER is None, reason="no chromium is installed: see CONTRIBUTING.md")
def test_a_browser_shows_the_page_without_scrolling_sideways_and_dark_if_it_is(copy: Path) -> None:
    for found, width in zip(seen(copy / "report.html", 400, 1200), (400, 1200), strict=True):
        assert found["svg"] == 7
        assert found["drawn"]
        assert found["scroll"] <= found["width"] == width
        assert (found["wide"], found["small"], found["filter"]) == ([], 0, "none")
        assert brightness(found["paper"]) > 700 > brightness(found["ink"])
    (dark,) = seen(copy / "report.html", 800, dark=True)
    assert brightness(dark["paper"]) < 100 < 600 < brightness(dark["ink"])
    assert "invert" in dark["filter"]
