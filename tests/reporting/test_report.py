"""The page about a study and about a run: its numbers against the summaries, and the page itself in a browser."""

import csv
import io
import json
import os
import re
import shutil
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from musbo.campaign import api, flags
from musbo.campaign.events import Evaluated, Trained
from musbo.campaign.ledger import Ledger
from musbo.campaign.news import Completed, News
from musbo.campaign.places import LEDGER
from musbo.campaign.runner import Interrupted
from musbo.campaign.summary import summary
from musbo.cli import main
from musbo.core.errors import UserError
from musbo.reporting import page, tensorboard, words
from musbo.reporting.advice import advise
from musbo.reporting.gather import gather
from musbo.reporting.glossary import TERMS
from musbo.reporting.page_settings import command
from musbo.reporting.verdict import verdict
from tests.reporting import made, sample
from tests.stories import tiny


class Tables(HTMLParser):
    """Every table of a page by its id: rows of texts, heads first."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: dict[str, list[list[str]]] = {}
        self.rows: list[list[str]] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.rows = self.found.setdefault(dict(attrs)["id"] or "", [])
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.inside = True
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.rows[-1][-1] += data


def plain(text: str) -> str:
    """A page without the explanations of its terms, and without the marks of flags."""
    return re.sub(r'<span class="term"[^>]*>(.*?)</span>', r"\1", re.sub("</?code>", "", text))


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return made.studies(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def study(studies: list[Path]) -> Path:
    return studies[0]


@pytest.fixture(scope="module")
def written(studies: list[Path]) -> Path:
    page.write(gather(studies), studies[0].parent / "report")
    return studies[0].parent / "report"


@pytest.fixture(scope="module")
def one(study: Path) -> Path:
    run = study / "pointmass-small-2x100-s0"
    page.write(gather([run]), run / "report")
    return run / "report"


def test_the_tables_of_a_study_are_its_data(study: Path, written: Path):
    shown = Tables((written / "index.html").read_text()).found
    head, *rows = shown["table-methods-pointmass-2x100"]
    assert [row[0] for row in rows] == ["small", "random", "bc"]
    for row in rows:
        finals = [
            json.loads((study / f"pointmass-{row[0]}-2x100-s{seed}" / "summary.json").read_text())["final_return"]
            for seed in (0, 1)
        ]
        mean, deviation = row[head.index("final return")].split(" ± ")
        assert float(mean) == pytest.approx(np.mean(finals), rel=6e-3)
        assert float(deviation) == pytest.approx(np.std(finals, ddof=1), rel=6e-3)
        assert row[head.index("runs")] == "2"
    small, random = (
        [summary(study / f"pointmass-{name}-2x100-s{seed}").final_return for seed in (0, 1)]
        for name in ("small", "random")
    )
    difference = float(rows[1][head.index("minus first")])
    assert difference == pytest.approx(np.mean(np.subtract(np.array(random, float), np.array(small, float))), rel=6e-3)
    assert shown["table-missing"][1:] == [[made.MISSING, "not begun"]]
    assert len(shown["table-runs"]) == 1 + 9
    assert [row[0] for row in shown["table-all-tasks"][1:]] == ["random", "bc"]  # what ran on both
    text = (written / "index.html").read_text()
    assert "1 missing" in text
    assert "for example: musbo report first/pointmass-small-2x100-s0</p>" in text
    assert plain(text).count("The coefficient is inert") == 1  # of two seeds and two deployments
    assert '<span class="note">small on pointmass, 2 x 100, seeds 0, 1, deployments 1, 2' in text
    assert re.findall(r"<h2>(.*?)</h2>", text)[0] == "Verdict" and "earns " in plain(text).partition("</section>")[0]


def test_the_files_beside_the_page(studies: list[Path], written: Path):
    rows = list(csv.DictReader(io.StringIO((written / "tables" / "deployments.csv").read_text())))
    assert len(rows) == 9 * 2
    for row in rows:
        place, budget = (studies[0], "2x100") if row["task"] == "pointmass" else (studies[1], "2x400")
        found = summary(place / f"{row['task']}-{row['method']}-{budget}-s{row['seed']}")
        item = found.deployments[int(row["deployment"]) - 1]
        assert float(row["mean_return"]) == item.mean_return  # every digit
        assert float(row["batch_return"]) == item.batch.mean_return
        novelty = item.batch.novelty
        assert row["novelty"] == ("" if novelty is None else str(novelty))
        assert (row["budget"], row["batch_size"]) == tuple(budget.split("x"))
    figures = sorted(path.name for path in (written / "figures").iterdir())
    for name in ("curves-pointmass-2x100", "final-pendulum-2x400", "novelty-pointmass-2x100", "profiles", "aggregate",
                 "curve-reliability-pointmass-2x100", "rank-correlation-pointmass-2x100",
                 "dynamics-error-pointmass-2x100"):  # fmt: skip
        assert f"{name}.svg" in figures and f"{name}.png" in figures
    tex = (written / "tables" / "methods-pointmass-2x100.tex").read_text()
    body = tex.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    columns = re.search(r"\\begin\{tabular\}\{(lr*)\}", tex)
    assert columns and len(body) == 3 and all(line.endswith(r"\\") for line in body)
    assert {line.count(" & ") + 1 for line in body} == {len(columns[1])}
    assert r"$\pm$" in tex and "±" not in tex and not re.search(r"(?<!\\)%", body[0])


def test_the_page_of_a_run(study: Path, one: Path):
    text = (one / "index.html").read_text()
    shown = Tables(text).found
    found = summary(study / "pointmass-small-2x100-s0")
    head, *rows = shown["table-deployments"]
    for row, item in zip(rows, found.deployments, strict=True):
        value, deviation = row[head.index("return")].split(" ± ")
        assert item.evaluation is not None and item.evaluation.episodes is not None
        assert float(value) == pytest.approx(item.mean_return, rel=6e-3)
        assert float(deviation) == pytest.approx(item.evaluation.episodes.deviation, rel=6e-3)
    for name in ("curve", "imagined", "training-U", "training-disagreement", "quantiles-zeta", "curve-reliability",
                 "uncertain-places-pointmass-2x100"):  # fmt: skip
        assert f'id="figure-{name}"' in text and (one / "figures" / f"{name}.png").exists()
    assert "data:image/webp;base64," in text and len(text) < 3_000_000  # the policy at work, as a film
    titles = re.findall(r"<h2>(.*?)</h2>", text)
    assert titles[:3] == ["Verdict", "Result", "The last policy at work"] and titles[-1] == "Glossary"
    assert escape(verdict(found).partition(" (")[0]) in plain(text)  # its words, without the explanations
    for i, each in enumerate(advise(found)):
        assert escape(words.sentence(each.text)) in plain(text), i
    assert '<span class="note">deployments 1, 2</span>' in text  # where a piece of advice applies
    beside = {row[0]: row[1:] for row in shown["table-beside"]}
    first, last = found.deployments
    assert last.evaluation and last.evaluation.episodes and first.evaluation and first.evaluation.episodes
    apart = np.subtract(last.evaluation.episodes.returns, first.evaluation.episodes.returns)  # type: ignore[arg-type]
    mean, error = beside["the policy after deployment 1"][1].split(" ± ")
    assert float(mean) == pytest.approx(apart.mean(), rel=6e-3)
    assert float(error) == pytest.approx(apart.std(ddof=1) / 2**0.5, rel=6e-3)
    assert float(beside["random actions (deployment 1)"][0]) == pytest.approx(first.batch.mean_return, rel=6e-3)
    assert {row[0] for row in shown["table-uncertain-pointmass-2x100"][1:]} == set(found.task.obs_labels)
    settings = {name: value for name, value in shown["table-settings"][1:]}
    assert settings["label.alpha"] == "0.001" and settings["dynamics.hidden"] == "16"
    command = re.search(r"<pre>(musbo run pointmass [^<]+)</pre>", text)
    assert command and "--updates 4" in command[1] and "--label.alpha 0.001" in command[1]
    assert "--trpo" not in command[1]  # as the preset has it


def test_the_command_on_the_page_makes_the_same_run(study: Path, one: Path, tmp_path: Path):
    command = re.search(r"<pre>musbo (run pointmass [^<]+)</pre>", (one / "index.html").read_text())
    assert command
    assert main([*command[1].split(), "--out", str(tmp_path / "again"), "--json"]) == 0
    before, after = (summary(path) for path in (study / "pointmass-small-2x100-s0", tmp_path / "again"))
    assert after.policy_sha256 == before.policy_sha256 and after.returns == before.returns


def test_equal_runs_give_equal_pages(studies: list[Path], written: Path, tmp_path: Path):
    page.write(gather(studies), tmp_path / "again")
    for path in sorted(written.rglob("*")):
        if path.is_file():
            assert (tmp_path / "again" / path.relative_to(written)).read_bytes() == path.read_bytes(), path


def test_a_run_under_way_has_a_page_too(tmp_path: Path):
    folder = api.start(tiny.settings(seed=5), (), tmp_path / "run")

    def stop(news: News) -> None:
        if isinstance(news, Completed) and isinstance(news.what, Evaluated):
            raise Interrupted

    with pytest.raises(Interrupted):
        api.resume(folder, observe=stop)
    page.write(gather([folder]), tmp_path / "report", film=False)
    text = plain((tmp_path / "report" / "index.html").read_text())
    assert "not finished: 1 of 2 batches" in text and "at work" not in text


def test_what_an_earlier_report_said_is_gone(study: Path, tmp_path: Path):
    page.write(gather([study]), tmp_path / "report", film=False)
    earlier = {path.name for path in (tmp_path / "report" / "figures").iterdir()}
    (tmp_path / "report" / "figures" / "mine.png").write_text("mine")
    page.write(gather([study / "pointmass-bc-2x100-s0"]), tmp_path / "report", film=False)
    left = {path.name for path in (tmp_path / "report" / "figures").iterdir()}
    gone = earlier - left
    assert "mine.png" in left and any(name.startswith("curves-") for name in gone)
    listed = json.loads((tmp_path / "report" / "report.json").read_text())
    assert left - {"mine.png"} == {Path(name).name for name in listed if name.startswith("figures/")}


def test_a_report_takes_no_folder_that_is_not_its_own(study: Path, tmp_path: Path):
    material = gather([study / "pointmass-bc-2x100-s0"])
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "mine.png").write_text("mine")
    with pytest.raises(UserError, match="holds no report"):
        page.write(material, tmp_path, film=False)
    assert [path.name for path in tmp_path.rglob("*")] == ["figures", "mine.png"]
    for text, complaint in (
        ("{", "cannot be read"),
        ("5", "cannot be read"),
        ('["../secret.csv"]', "not that of a report"),
    ):
        (tmp_path / "report.json").write_text(text)
        with pytest.raises(UserError, match=complaint):
            page.write(material, tmp_path, film=False)


def test_runs_with_other_settings_are_not_averaged(study: Path, tmp_path: Path):
    run = study / "pointmass-small-2x100-s0"
    for name, flagged, episodes in (("hot", ["--label.alpha", "0.5"], 2), ("short", [], 3)):
        method = flags.parse(tiny.method(), flagged)
        settings = replace(tiny.settings(seed=7), method=method, episodes=episodes)
        api.resume(api.start(settings, (), tmp_path / name))
    with pytest.raises(UserError, match=r"settings differ, so the runs cannot be averaged") as caught:
        gather([run, tmp_path / "hot"])
    assert "--label.alpha (0.001 and 0.5)" in str(caught.value)
    with pytest.raises(UserError, match=r"--episodes \(2 and 3\)"):
        gather([run, tmp_path / "short"])


def test_a_score_to_reach(study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["report", str(study), "--no-film", "--out", str(tmp_path / "report")]
    assert main([*words, "--score", "pointmass=-1e9"]) == 0
    with (tmp_path / "report" / "tables" / "methods-pointmass-2x100.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert rows and all((row["goal"], row["reached"], row["needed"]) == ("-1000000000.0", "2", "1.0") for row in rows)
    assert "a return of -1000000000.0:" in (tmp_path / "report" / "index.html").read_text()
    for word, complaint in (
        ("pointmass", "TASK=RETURN"),
        ("pointmass=high", "TASK=RETURN"),
        ("ant=5", "no run is on ant"),
    ):
        assert main([*words, "--score", word]) == 2
        assert complaint in capsys.readouterr().err


def test_diagnostics_of_a_study_as_numbers(study: Path, tmp_path: Path):
    page.write(gather([study]), tmp_path / "report", film=False)
    with (tmp_path / "report" / "tables" / "diagnostics-pointmass-2x100.csv").open() as stream:
        rows = {(row["diagnostic"], row["method"]): row for row in csv.DictReader(stream)}
    each = [summary(study / f"pointmass-small-2x100-s{seed}").deployments[1].batch.novelty for seed in (0, 1)]
    assert None not in each
    novelty = rows["novelty", "small"]
    assert novelty["mean_1"] == "" and float(novelty["mean_2"]) == pytest.approx(np.mean(np.array(each, float)))
    assert float(novelty["deviation_2"]) == pytest.approx(np.std(np.array(each, float), ddof=1))
    assert ("energy distance", "small") in rows and ("energy distance", "bc") not in rows


def test_a_run_that_no_command_line_can_describe_says_so(study: Path):
    (run,) = gather([study / "pointmass-bc-2x100-s0"]).runs
    assert command(run).startswith("musbo run pointmass --algo bc ")
    for other in (replace(run.settings, task="<mine>"), replace(run.settings, algo="musbo")):
        changed = replace(run, summary=replace(run.summary, settings=other))
        assert command(changed).startswith("# pointmass-bc-2x100-s0: made from Python")


def test_what_cannot_be_reported(tmp_path: Path, study: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(UserError, match="neither a run nor a study"):
        gather([tmp_path])
    run = study / "pointmass-small-2x100-s0"
    with pytest.raises(UserError, match="with seed 0"):
        page.write(gather([run, run]), tmp_path / "twice")
    assert not (tmp_path / "twice").exists()
    (tmp_path / "file").write_text("")
    assert main(["report", str(run), "--no-film", "--out", str(tmp_path / "file")]) == 2
    assert "choose another --out" in capsys.readouterr().err


def test_a_damaged_cell_is_missing_and_the_others_are_shown(tmp_path: Path, study: Path):
    copy = tmp_path / "copy"
    shutil.copytree(study, copy, ignore=shutil.ignore_patterns("report"))
    (copy / "pointmass-bc-2x100-s1" / "ledger.sqlite").write_text("this is no database")
    found = gather([copy])
    assert len(found.runs) == 5
    assert [item.cell.folder for item in found.missing] == ["pointmass-bc-2x100-s1"]
    assert "is damaged or not a ledger of musbo" in found.missing[0].state
    page.write(found, tmp_path / "report", film=False)
    tables = Tables((tmp_path / "report" / "index.html").read_text()).found
    runs = {row[0]: row[1] for row in tables["table-methods-pointmass-2x100"][1:]}
    assert runs == {"small": "2", "random": "2", "bc": "1 of 2"}
    assert tables["table-missing"][1:] == [["pointmass-bc-2x100-s1", found.missing[0].state]]


def test_records_that_cannot_be_read_say_why(tmp_path: Path, study: Path):
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(study / "study.json", copy)
    with pytest.raises(UserError, match="no run has a batch"):
        gather([copy])
    for cell in study.glob("pointmass-*"):
        (copy / cell.name).mkdir()
        (copy / cell.name / LEDGER).write_text("this is no database")
    with pytest.raises(UserError, match="nothing to report: no run can be read") as caught:
        gather([copy])
    text = str(caught.value)
    assert text.count("is damaged or not a ledger of musbo") == 3 and text.endswith("; and 3 more.")
    assert "pointmass-small-2x100-s0 (" in text


# Records of earlier formats

RECORDS = Path(__file__).parents[2] / "benchmarks"


def test_the_published_returns_of_kept_records(tmp_path: Path):
    found = gather([RECORDS / "comparison" / "records" / "halfcheetah"])
    (musbo,) = (run for run in found.runs if (run.method, run.seed) == ("musbo", 74))
    assert [round(value or 0.0) for value in musbo.summary.returns] == [3187, 4871, 5949, 6147, 5412]
    page.write(gather([musbo.folder]), tmp_path / "run", film=False)
    text = (tmp_path / "run" / "index.html").read_text()
    head, *rows = Tables(text).found["table-deployments"]
    assert [row[head.index("return")].split(" ± ")[0] for row in rows] == [
        "3187.0", "4871.0", "5948.8", "6147.5", "5411.7"
    ]  # fmt: skip
    for name in ("quantiles-U", "quantiles-zeta", "curve-reliability"):  # no metrics of the training were kept
        assert f'id="figure-{name}"' in text


def test_a_page_about_kept_records(tmp_path: Path):
    found = gather([RECORDS / "novelty" / "records"])
    page.write(found, tmp_path / "report", film=False)
    with (tmp_path / "report" / "tables" / "returns-cheetah-run-5x50000.csv").open() as stream:
        rows = {row["method"]: row for row in csv.DictReader(stream)}
    for method in found.methods(found.groups[0]):
        finals = [run.summary.final_return for run in found.finished(found.groups[0], method)]
        assert float(rows[method]["mean_5"]) == pytest.approx(np.mean(np.array(finals, float)))
    drawn = {path.stem for path in (tmp_path / "report" / "figures").glob("*.svg")}
    for name in ("curves", "final", "novelty", "dynamics-error", "energy-distance", "trajectory-error",
                 "rank-correlation", "imagined-minus-real", "curve-reliability"):  # fmt: skip
        assert f"{name}-cheetah-run-5x50000" in drawn


# Whatever a method has to say


def with_unknown(folder: Path, copy: Path) -> Path:
    """The ledger of a run whose last training found what nobody has heard of, and wrote a series of it."""
    copy.mkdir()
    with Ledger(folder / LEDGER) as before, Ledger(copy / LEDGER, create=True) as ledger:
        for event in before.events():
            what = event.what
            ledger.append(
                replace(what, findings=sample.UNKNOWN) if isinstance(what, Trained) else what, event.deployment
            )
            if isinstance(what, Trained):
                for i in range(1, 4):
                    numbers = {"temper": [1.25, 2.5 + i, 5.0 + i], "surprise": 0.375}
                    ledger.record(event.deployment, "improve", i, 3, numbers)
    return copy


def test_a_diagnostic_that_nobody_has_heard_of_is_everywhere(tmp_path: Path, study: Path):
    folder = with_unknown(study / "pointmass-small-2x100-s0", tmp_path / "run")
    material = gather([folder])
    page.write(material, tmp_path / "report", film=False)
    text = (tmp_path / "report" / "index.html").read_text()
    for name in ("surprise-pointmass-2x100", "training-temper", "quantiles-mood", "curve-trust"):
        assert f'id="figure-{name}"' in text
    assert "Temper of the actor over training. Made up." in text and "How often it is wrong." in text
    head, *rows = Tables(text).found["table-training"]
    assert rows[1][head.index("surprise / step")] == "0.375"
    assert rows[1][head.index("temper")] == "1.250 2.500 5.000"
    with (tmp_path / "report" / "tables" / "training.csv").open() as stream:
        last = list(csv.DictReader(stream))[-1]
    assert (last["surprise"], last["temper_90"], last["mood_50"]) == ("0.375", "5.0", "4.0") and "trust" not in last
    logged = {(name, step): value for name, value, step in tensorboard.scalars(material.runs[0])}
    assert logged["deployment/surprise", 2] == 0.375 and logged["deployment/mood_50", 1] == 4.0
    assert logged["improve/temper_50", 2] == 4.5 and logged["improve/surprise", 6] == 0.375


def test_a_run_whose_ledger_alone_was_kept_says_so(tmp_path: Path, study: Path):
    (tmp_path / "run").mkdir()
    shutil.copy(study / "pointmass-small-2x100-s0" / "ledger.sqlite", tmp_path / "run")
    page.write(gather([tmp_path / "run"]), tmp_path / "report")
    text = plain((tmp_path / "report" / "index.html").read_text())
    kept = "the networks and data of musbo, seed 0, were not kept here."
    assert f"Not shown: {kept}" in text and f"No pictures: {kept}" in text and str(tmp_path) not in text


def test_the_command(study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["report", str(study), "--no-film", "--tensorboard", "--out", str(tmp_path / "out"), "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert all(Path(path).exists() for kind in ("figures", "tables") for path in found[kind])
    assert Path(found["page"]).exists() and len(list(Path(found["tensorboard"]).iterdir())) == 6


# In a browser

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
in_a_browser = pytest.mark.skipif(
    BROWSER is None and os.environ.get("MUSBO_BROWSER") != "required",
    reason="no browser: apt install chromium, and this test opens the page in it",
)


@in_a_browser
def test_a_long_message_stays_on_a_narrow_page(tmp_path: Path, study: Path):
    from playwright.sync_api import sync_playwright

    run = tmp_path / "run"
    shutil.copytree(study / "pointmass-small-2x100-s0", run, ignore=shutil.ignore_patterns("report"))
    for path in (run / "store").iterdir():
        path.unlink()
    page.write(gather([run]), tmp_path / "report")
    place = tmp_path / "report" / "index.html"
    assert len(re.findall(rf"cannot read the artefact {run}/store/[0-9a-f]{{64}}", place.read_text())) == 2
    assert BROWSER is not None, "MUSBO_BROWSER=required, but there is no chromium"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 360, "height": 900})
        tab.goto(place.as_uri())
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360
        browser.close()


@in_a_browser
@pytest.mark.parametrize("which", ["study", "run"])
def test_the_page_in_a_browser(written: Path, one: Path, which: str):
    from playwright.sync_api import sync_playwright

    place = written if which == "study" else one
    assert BROWSER is not None, "MUSBO_BROWSER=required, but there is no chromium"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        seen: dict[str, Any] = {}
        for theme, width in (("light", 1280), ("dark", 1280), ("light", 360)):
            context = browser.new_context(color_scheme=theme, viewport={"width": width, "height": 900})  # type: ignore[arg-type]
            tab, asked, complaints = context.new_page(), [], []
            tab.on("request", lambda request, asked=asked: asked.append(request.url))
            tab.on("console", lambda message, complaints=complaints: complaints.append(message.text))
            tab.on("pageerror", lambda error, complaints=complaints: complaints.append(str(error)))
            tab.goto((place / "index.html").as_uri())
            outside = [url for url in asked if not url.startswith("data:")]
            assert outside == [(place / "index.html").as_uri()] and complaints == []
            sizes = tab.eval_on_selector_all(
                "figure svg", "all => all.map(one => [one.getBBox().width, one.clientWidth, one.clientHeight])"
            )
            assert len(sizes) == len(list((place / "figures").glob("*.svg")))
            assert all(drawn > 100 and wide > 200 and high > 60 for drawn, wide, high in sizes)
            pictures = tab.eval_on_selector_all(".film img", "all => all.map(one => one.naturalWidth)")
            assert len(pictures) == (2 if which == "study" else 1) and min(pictures) > 100
            tab.hover(".term >> nth=0")
            about = "getComputedStyle(document.querySelector('.term'), '::after').content"
            assert tab.evaluate(about).strip('"') in TERMS.values()
            assert tab.evaluate("document.documentElement.scrollWidth") <= width  # nothing sticks out
            ids = tab.eval_on_selector_all("[id]", "all => all.map(one => one.id)")
            assert len(ids) == len(set(ids))
            colour = "getComputedStyle(document.querySelector('figure svg text')).fill"
            paper = "getComputedStyle(document.body).backgroundColor"
            seen[f"{theme}-{width}"] = tab.evaluate(colour), tab.evaluate(paper)
            table = "deployments" if which == "run" else "methods-pointmass-2x100"
            first = tab.inner_text(f"#table-{table} tbody tr:first-child")
            wanted = Tables((place / "index.html").read_text()).found[f"table-{table}"][1]
            assert re.split(r"\s*\t\s*", first.strip()) == wanted
            tab.emulate_media(media="print")
            heights = tab.eval_on_selector_all("details table", "all => all.map(one => one.offsetHeight)")
            assert which == "run" or (heights and min(heights) > 100)  # on paper nothing is folded away
        browser.close()
    assert seen["light-1280"] == seen["light-360"]
    assert seen["light-1280"][0] != seen["dark-1280"][0] and seen["light-1280"][1] != seen["dark-1280"][1]
