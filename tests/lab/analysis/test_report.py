"""The report in a real browser: tables, charts, frames, every width and colour scheme."""

import base64
import io
import json
import re
import shlex
import shutil
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image

from zoerefine.base.config import load_config
from zoerefine.cli import main
from zoerefine.depth.data.synthetic import synthesize
from zoerefine.depth.training.job import run_training

pytest.importorskip("selenium", reason="selenium is not installed")
from tests.lab.analysis.conftest import Runs
from tests.lab.analysis.report_page import NUMBER, ReportPage

AXE = Path(__file__).parents[2] / "browser" / "node_modules" / "axe-core" / "axe.min.js"
BEST = "val/refined/abs_rel"
NETWORKS = ("guided", "small", "unet")
EXPLAINED = {"95%", "80%", "0.05"}  # numbers of the explanations, not of the runs
EVIL = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    r"$\frac{1}{2}$ \input{x} & %",
    "=1+2",
    "@SUM(A1)",
    "left \u202eright\u2066 mark",
    "</style></title><svg onload=\"document.title='owned'\">",
    "x" * 200,
    "two\nlines",
)


@pytest.fixture
def open_page(browser):
    """open_page(folder, width, scheme) -> the page; afterwards the browser is as before."""
    yield lambda *words, **options: ReportPage(browser, *words, **options)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.fixture
def page(open_page, report):
    return open_page(report)


@pytest.fixture(scope="session")
def many(tmp_path_factory):
    """The report of fifty runs made by hand. Tests must not change it."""
    folder = tmp_path_factory.mktemp("many")
    add_many(Runs(folder / "runs"), 50)
    assert main(["analyze", str(folder / "runs"), "--out", str(folder / "report")]) == 0
    return folder / "report"


def add_many(runs, count, best=0.3, epochs=100):
    """Groups of five seeds with twenty scenes each."""
    rng = np.random.default_rng(0)
    for number in range(count):
        group, seed = divmod(number, 5)
        settings = {"LR": [1e-4, 1e-3, 1e-2][group % 3], "NAME": NETWORKS[group // 3 % 3],
                    "WIDTH": 8 * (1 + group)}  # fmt: skip
        scenes = best + 0.01 * group + rng.normal(0, 0.02, 20)
        curve = 0.4 + 0.5 * np.exp(-np.arange(epochs) / 30) + rng.normal(0, 0.01, epochs)
        runs.add(f"run{number:03d}", settings, scenes.tolist(), seed, curve.tolist(),
                 parameters=1000 + number // 5)  # fmt: skip


def test_it_loads_without_errors_and_without_the_network(page, report):
    assert page.browser.get_log("browser") == []
    assert page.find("#summary li").text.startswith("Best on the")
    for image in page.find_all("img"):
        assert page.script("return arguments[0].naturalWidth", image) > 0
    text = (report / "report.html").read_text()
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "https://" not in text


def test_results_come_first(page):
    titles = page.texts("main h2")
    assert titles[:2] == ["Results", "Overview"]
    assert page.texts("nav a") == titles


def test_every_number_equals_that_of_runs_csv(page):
    page.show_all_columns("runs")
    rows = {row["run"]: row for row in page.rows("runs.csv")}
    names = page.cells("runs", "run")
    assert sorted(names) == sorted(rows)
    for column in (BEST, "test/refined/rmse", "seed", "images_per_s", "TRAIN.LR"):
        for name, value in zip(names, page.cells("runs", column), strict=True):
            theirs = rows[name][column]
            assert value == theirs or float(value) == float(theirs), column


@pytest.mark.parametrize("folder", ["report", "many"])
def test_every_number_on_the_page_is_in_the_csv_files_that_its_section_names(
    open_page, folder, request
):
    page = open_page(request.getfixturevalue(folder))
    for table in ("groups", "differences", "scenes", "runs"):
        page.show_all_columns(table)
    seen = 0
    for section in page.find_all("main section"):
        name = section.get_attribute("id")
        found = set(NUMBER.findall(page.section_text(name))) - EXPLAINED
        sources = [text for text in page.texts(f"#{name} code") if text.endswith(".csv")]
        strings = page.numbers_of("runs.csv")  # of the names of runs, groups and folders
        names = {n for n in strings if any(n in row["group"] for row in page.rows("runs.csv"))}
        assert found - names <= page.numbers_of(*sources), name
        seen += len(found)
    assert seen > 50


def test_curves_and_frames_describe_themselves_with_numbers_of_their_csv_files(page):
    described = []
    for option in page.find_all("#curve-choice option")[1:]:
        option.click()
        described += NUMBER.findall(page.find("#curve-name").text.partition(": from")[2])
    assert len(described) == 2 * len({row["run"] for row in page.rows("curves.csv")})
    assert set(described) <= page.numbers_of("curves.csv")
    titles = []
    for option in page.find_all("#frames-right option"):
        option.click()
        titles += page.texts(".frame h3")
    for row in page.rows("frames.csv"):
        number = f"{float(row['abs_rel']):.4f} ({row['depth']})"
        assert any(title.startswith(row["frame"]) and number in title for title in titles)


def test_it_sorts_and_filters(open_page, runs, tmp_path):
    for name, score in (("first", 0.3), ("second", 0.1), ("third", 0.2)):
        runs.add(name, {"LR": score}, (score,))
    runs.add("fourth", {"LR": 1.0}, test={}, test_scenes={})  # without the metric
    assert main(["analyze", str(runs.folder), "--out", str(tmp_path / "report")]) == 0
    page, column = open_page(tmp_path / "report"), "test/refined/abs_rel"
    button = page.browser.find_element("xpath", f"//div[@id='runs']//button[text()='{column}']")
    for descending in (False, True):
        page.script("arguments[0].click()", button)
        *cells, last = page.cells("runs", column)
        values = [float(value) for value in cells]
        assert values == sorted(values, reverse=descending) and last == ""
        button = page.browser.switch_to.active_element  # the heading is drawn anew, with the focus
        assert button.text == column
    words = [2, "0.20", "x", "0.10", "0.050"]
    by_size = f"return {json.dumps(words)}.sort((a, b) => compare(a, b, true))"
    assert page.script(by_size) == ["0.050", "0.10", "0.20", 2, "x"]
    page.find("#filter").send_keys("third")
    assert page.cells("runs", "run") == ["third"]
    assert page.find("#shown").text == "1 of 4"


def test_equal_columns_are_hidden_and_listed_once(page):
    headings = page.texts("#runs thead th")
    assert headings[:3] == ["run", "group", BEST]
    assert not {"state", "seed", "commit", "path"} & set(headings)
    page.script("for (const one of document.querySelectorAll('details')) one.open = true")
    same = page.find("#runs .same").text
    assert "seed 0" in same
    page.find("#runs fieldset label:nth-of-type(2) input").click()
    assert len(page.texts("#runs thead th")) == len(headings) + 1


@pytest.mark.parametrize("rounded", [0.3, 0.1 + 0.2])  # the second differs in its last bit
def test_results_that_are_all_equal_are_shown(open_page, runs, tmp_path, rounded):
    for seed in range(3):
        for name, score in (("a", 0.3), ("b", rounded)):
            settings = {"NAME": name, "WIDTH": score}
            runs.add(f"{name}{seed}", settings, (score,), seed, curve=(0.3, score))
    assert main(["analyze", str(runs.folder), "--out", str(tmp_path / "report")]) == 0
    page = open_page(tmp_path / "report")
    assert "mean" in page.texts("#groups thead th")
    assert page.find_all("#curves svg")
    assert "verdict" in page.texts("#differences thead th")
    assert "test/refined/abs_rel" in page.texts("#runs thead th")


def test_hashes_are_short_with_all_characters_as_title(open_page, many):
    page = open_page(many)
    text = page.script("return document.querySelector('#runs .same').textContent")
    assert "commit abababab," in text
    titles = [part.get_attribute("title") for part in page.find_all("#runs .same span")]
    assert "ab" * 20 in titles


def test_a_scene_has_a_row_and_its_lowest_value_is_bold(open_page, many):
    page = open_page(many)
    assert page.cells("scenes", "scene") == [row["scene"] for row in page.rows("scenes.csv")]
    for cells, row in zip(page.find_all("#scenes tbody tr"), page.rows("scenes.csv"), strict=True):
        bold = cells.find_elements("css selector", ".best")
        lowest = min(float(value) for name, value in row.items() if name != "scene")
        assert [float(cell.get_attribute("data-value")) for cell in bold] in ([lowest], [])


def test_the_slider_moves_between_left_and_right(page):
    slider = page.find("#slider-0")
    over = page.find(".frame .pair img:nth-child(2)")
    before = over.value_of_css_property("clip-path")
    slider.send_keys("\ue014" * 10)  # arrow right
    after = over.value_of_css_property("clip-path")
    assert before != after
    assert "60%" in after


def test_a_frame_has_its_truth_colour_bars_and_a_depth_of_each_group(page):
    frame = page.find(".frame")
    assert page.texts(".frame figcaption")[:2] == ["RGB", "true depth; grey: none"]
    assert len(frame.find_elements("css selector", ".bar")) == 3  # truth, depths, errors
    groups = [row["group"] for row in page.rows("groups.csv") if row["mean"]]
    options = page.texts("#frames-right option")
    assert options == ["synthetic pseudo depth", *groups]
    pictures = set()
    for option in options:
        page.choose("#frames-right", option)
        assert option in frame.text
        pictures.add(page.find(".frame .pair img:nth-child(2)").get_attribute("src"))
    assert len(pictures) > 1


def test_a_chosen_curve_is_highlighted_and_named(page):
    choice = page.texts("#curve-choice option")[1]
    page.choose("#curve-choice", choice)
    assert len(page.find_all("#curves .chosen")) == 1
    assert page.find("#curve-name").text.startswith(choice.split(":")[0])


@pytest.mark.parametrize("width", [390, 1400])
def test_ticks_are_round_numbers(open_page, many, width):
    page = open_page(many, width)
    charts = page.find_all("#curves, #setting-charts figure")
    assert len(charts) == 4
    for chart in charts:
        for axis in ("x", "y"):
            texts = chart.find_elements("css selector", f".{axis}-tick")
            values = [float(text.text) for text in texts]
            places = [text.rect["x"] + text.rect["width"] / 2 for text in texts]
            if axis == "x":
                ends = [(text.rect["x"], text.rect["x"] + text.rect["width"]) for text in texts]
                assert all(a[1] < b[0] for a, b in pairwise(ends)), values
                assert len(values) >= 2, places
            digits = {f"{value:e}".partition("e")[0].rstrip("0").rstrip(".") for value in values}
            steps = {f"{b - a:.2e}"[0] for a, b in pairwise(values)}
            is_even = len({round(b - a, 9) for a, b in pairwise(values)}) == 1
            assert steps <= {"1", "2", "5"} if is_even else digits <= {"1", "2", "3", "5", "7"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("folder", ["report", "many"])
def test_it_fits_every_screen_and_the_accessibility_check_finds_nothing(
    open_page, folder, width, scheme, request
):
    page = open_page(request.getfixturevalue(folder), width, scheme)
    page.script("for (const one of document.querySelectorAll('details')) one.open = true")
    assert page.content_width() <= width
    if not AXE.exists():
        pytest.skip("no axe-core here: npm install in tests/browser")
    page.script(AXE.read_text())
    found = page.browser.execute_async_script("axe.run().then(r => arguments[0](r.violations))")
    assert [(v["id"], [n["html"] for n in v["nodes"]][:3]) for v in found] == []


def test_texts_of_pictures_are_readable_on_a_phone(open_page, many):
    page = open_page(many, 390)
    address, width = page.script(
        "const image = document.querySelector('#graph img');"
        "return [image.currentSrc, image.clientWidth]"
    )
    svg = base64.b64decode(unquote(address.partition(",")[2])).decode()
    drawn = float(re.search(r'viewBox="0 0 ([\d.]+)', svg)[1])
    sizes = [float(size) for size in re.findall(r"font(?:-size)?: ([\d.]+)px", svg)]
    assert len(sizes) > 20
    assert min(sizes) * width / drawn >= 10
    charts = page.script(
        "return [...document.querySelectorAll('.chart')].map((one) => "
        "one.getBoundingClientRect().width / one.viewBox.baseVal.width)"
    )
    assert charts
    assert min(charts) > 0.99  # texts of 12 pixels are not shrunk


@pytest.mark.parametrize("width", [390, 1400])
def test_the_page_and_its_graph_follow_the_colour_scheme(open_page, many, width):
    brightness = {}
    for scheme in ("light", "dark"):
        page = open_page(many, width, scheme)
        picture = Image.open(io.BytesIO(page.find("#graph img").screenshot_as_png))
        brightness[scheme] = np.median(np.asarray(picture.convert("L")))
        texts = np.asarray(picture.convert("L"))
        assert texts.max() - texts.min() > 150  # the lines and texts differ from the background
    assert brightness["light"] > 240
    assert brightness["dark"] < 40


def test_it_prints(page):
    assert base64.b64decode(page.browser.print_page()).startswith(b"%PDF")


def test_it_has_the_commands_that_open_tensorboard_and_the_study(page, copied_study):
    commands = [shlex.split(text) for text in page.texts("#commands code")]
    assert commands == [["zoerefine", "dashboard", str(copied_study.path)]]


def test_the_command_of_a_folder_with_odd_letters_is_quoted(open_page, runs, tmp_path):
    runs.folder = tmp_path / "it's $HOME; runs"
    runs.add("a")
    assert main(["analyze", str(runs.folder), "--out", str(tmp_path / "report")]) == 0
    (command,) = open_page(tmp_path / "report").texts("#commands code")
    assert shlex.split(command) == ["zoerefine", "dashboard", str(runs.folder)]


def test_a_hundred_runs_with_frames_are_less_than_3_mb(open_page, runs, tmp_path):
    """Five groups have frames, as wide as any picture of the page."""
    add_many(runs, 95, best=9.0, epochs=1000)
    world = tmp_path / "world"
    synthesize(world, scenes=3, clips=1, frames=4, seed=0, height=240, width=320)
    folders = {"RUN.ROOT": str(tmp_path / "first"), "CACHE.ROOT": str(tmp_path / "caches")}
    size = {"CACHE.HEIGHT": 240, "CACHE.WIDTH": 320, "MODEL.BASE": 4}
    training = {"TRAIN.EPOCHS": 1, "TRAIN.PICTURES": 0}
    data = {"DATA.ROOT": str(world), "DATA.TEST_FRACTION": 0.3}
    trained = run_training(load_config({}, folders | size | training | data))
    for group in range(5):
        copy = shutil.copytree(trained.path, runs.folder / f"copy{group}")
        config = (copy / "config.yaml").read_text()
        (copy / "config.yaml").write_text(re.sub(r"\n  LR: .*", f"\n  LR: 0.00{1 + group}", config))
    out = tmp_path / "report"
    assert main(["analyze", str(runs.folder), "--out", str(out)]) == 0
    page = open_page(out)
    assert page.find("#shown").text == "100 of 100"
    assert len(page.find_all("#frames-right option")) == 6
    assert (out / "report.html").stat().st_size < 3e6


def test_strings_of_runs_are_shown_as_text_everywhere(open_page, runs, tmp_path):
    for number, text in enumerate(EVIL):
        names = {f"{text} {scene}": None for scene in range(6)}
        add_named(runs, f"run {number} {text}".replace("/", "_"), text, list(names))
    out = tmp_path / "report"
    assert main(["analyze", str(runs.folder), "--out", str(out)]) == 0
    page = open_page(out, 390)
    page.show_all_columns("runs")
    for option in page.find_all("#curve-choice option"):
        option.click()
    assert page.browser.title == "zoerefine: comparison of runs"
    assert page.browser.get_log("browser") == []
    text = page.script("return document.body.innerText")
    assert not {"\u202e", "\u2066"} & set(text)
    escapes = {ord("\u202e"): r"\u202e", ord("\u2066"): r"\u2066", ord("\n"): r"\n"}
    for value in (name.translate(escapes) for name in EVIL):
        assert value in page.cells("runs", "TRAIN.NAME")
    for section in ("results", "learning", "settings", "open"):
        assert len(page.find_all(f"#{section} script, #{section} [onerror]")) == 0
    assert page.content_width() <= 390


def add_named(runs, folder, name, scenes):
    """A run whose settings, scenes and data have this text."""
    path = runs.add(folder, {"NAME": name}, data=name, pseudo_label=name, scenes=[0.2] * 6)
    document = json.loads((path / "results.json").read_text())
    values = document["test_scenes"].values()
    document["test_scenes"] = dict(zip(scenes, values, strict=True))
    (path / "results.json").write_text(json.dumps(document))
