"""The report in a real browser: it loads, sorts, filters, slides, prints and is accessible."""

import base64
import csv
from pathlib import Path

import pytest

from zoerefine.cli import main

AXE = Path(__file__).parents[1] / "browser" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture
def page(browser, report):
    browser.set_window_size(1200, 900)
    browser.get(f"file://{report}/report.html")
    return browser


CELLS = """
  const names = [...document.querySelectorAll("#runs th")].map((th) => th.textContent);
  const rows = [...document.querySelectorAll("#runs tbody tr")].filter((row) => row.offsetParent);
  return rows.map((row) => row.children[names.indexOf(arguments[0])].dataset.value);
"""


def cells(page, column):
    """The values of a column in the rows that are visible."""
    return page.execute_script(CELLS, column)


def test_it_loads_without_errors_and_without_the_network(page, report):
    assert page.get_log("browser") == []
    assert page.find_element("css selector", "#summary li").text.startswith("Best on the")
    assert all(
        page.execute_script("return arguments[0].naturalWidth", image) > 0
        for image in page.find_elements("tag name", "img")
    )
    text = (report / "report.html").read_text()
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "https://" not in text


def test_every_number_equals_that_of_runs_csv(page, report):
    with open(report / "runs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for column in ("run", "val/refined/abs_rel", "test/refined/rmse", "seed", "images_per_s"):
        ours = cells(page, column)
        for value, row in zip(ours, rows, strict=True):
            theirs = row[column]
            assert value == theirs or float(value) == float(theirs), column


def test_it_sorts_and_filters(page):
    column = "val/refined/abs_rel"
    button = page.find_element("xpath", f"//table[@id='runs']//button[text()='{column}']")
    for descending in (False, True):
        page.execute_script("arguments[0].click()", button)
        values = [float(value) for value in cells(page, column) if value]
        assert values == sorted(values, reverse=descending)
        assert cells(page, column)[-1] == ""  # a run without the metric stays last
    field = page.find_element("id", "filter")
    field.send_keys("trial 1")
    assert cells(page, "run") == ["trial 1"]
    assert page.find_element("id", "shown").text == "1 of 4"


def test_the_slider_moves_between_before_and_refined(page):
    slider = page.find_element("id", "slider-0")
    over = page.find_element("css selector", ".frame .pair img:nth-child(2)")
    before = over.value_of_css_property("clip-path")
    slider.send_keys("\ue014" * 10)  # arrow right
    after = over.value_of_css_property("clip-path")
    assert before != after
    assert "60%" in after


def test_a_curve_shows_the_name_of_its_run(page):
    path = page.find_element("css selector", "#curves path")
    page.execute_script("arguments[0].focus()", path)
    assert page.find_element("id", "curve-name").text.startswith("trial")


def test_it_fits_a_phone_and_a_printer(page):
    page.set_window_size(500, 900)
    widths = page.execute_script(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert widths[0] <= widths[1]
    assert base64.b64decode(page.print_page()).startswith(b"%PDF")


@pytest.mark.skipif(not AXE.exists(), reason="no axe-core here: npm install in tests/browser")
def test_the_accessibility_check_finds_nothing(page):
    page.execute_script(AXE.read_text())
    found = page.execute_async_script("axe.run().then(r => arguments[0](r.violations))")
    assert [(v["id"], [n["html"] for n in v["nodes"]][:3]) for v in found] == []


def test_markup_in_settings_is_shown_as_text(browser, runs, tmp_path):
    act = "document.title='owned'"
    evil = f'</script><script>{act}</script><img src=x onerror="{act}">'
    runs.add("a", {"NAME": evil})
    runs.add("b", {"NAME": "good"}, data=evil)
    assert main(["analyze", str(runs.folder), "--out", str(tmp_path / "report")]) == 0
    browser.get(f"file://{tmp_path}/report/report.html")
    assert browser.title == "zoerefine: comparison of runs"
    assert browser.get_log("browser") == []
    assert evil in [cell.get_attribute("data-value")
                    for cell in browser.find_elements("css selector", "#runs td")]  # fmt: skip
