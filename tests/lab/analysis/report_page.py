"""A report page in a real browser: opened in any width and colour scheme, and read."""

import re
from decimal import ROUND_HALF_UP, Decimal

from selenium.webdriver.support.ui import Select

from tests.tables import csv_rows

NUMBER = re.compile(r"[-+]?\d+\.\d+(?:e[-+]?\d+)?|\d+%")

CELLS = """
  const heads = [...document.querySelectorAll(`#${arguments[0]} thead th`)];
  const names = heads.map((head) => head.textContent);
  return [...document.querySelectorAll(`#${arguments[0]} tbody tr`)]
    .map((row) => row.children[names.indexOf(arguments[1])].dataset.value);
"""
# A section's text without the ticks of its charts and colour bars.
TEXT = """
  const copy = document.getElementById(arguments[0]).cloneNode(true);
  for (const ticks of copy.querySelectorAll("svg, .bar-ticks, option")) ticks.remove();
  for (const part of copy.querySelectorAll("*")) part.append(" ");
  return copy.textContent;
"""
TICK_BOXES = """
  for (const box of document.querySelectorAll("#" + arguments[0] + " input[type=checkbox]"))
    if (!box.checked) box.click();
"""


class ReportPage:
    """report.html of a folder."""

    def __init__(self, browser, folder, width=1200, scheme="light"):
        self.browser, self.folder = browser, folder
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.set_script_timeout(600)  # it only ends a test that would wait forever
        browser.get(f"file://{folder}/report.html")

    def script(self, text, *words):
        return self.browser.execute_script(text, *words)

    def content_width(self):
        """More than the window's width where the page itself scrolls sideways."""
        return self.script("return document.documentElement.scrollWidth")

    def find(self, selector):
        return self.browser.find_element("css selector", selector)

    def find_all(self, selector):
        return self.browser.find_elements("css selector", selector)

    def texts(self, selector):
        return [found.text for found in self.find_all(selector)]

    def cells(self, table, column):
        """The values of a shown column in the rows that are shown."""
        return self.script(CELLS, table, column)

    def show_all_columns(self, table):
        self.script(TICK_BOXES, table)

    def choose(self, select, text):
        Select(self.find(select)).select_by_visible_text(text)

    def section_text(self, section):
        return self.script(TEXT, section)

    def rows(self, name):
        """The rows of a CSV file beside the page."""
        return csv_rows(self.folder / name)

    def numbers_of(self, *names):
        """Every number of CSV files as the page may write it."""
        found = set()
        for name in names:
            for text in (cell for row in self.rows(name) for cell in (*row, *row.values())):
                found |= written(text)
        return found


def written(text):
    """A number's forms on the page; the numbers in any other text."""
    try:
        value = float(text)
    except ValueError:
        return set(NUMBER.findall(text))
    small = {f"{value:.2e}", f"{value:+.2e}"}
    small |= {re.sub(r"e([-+])0*(?=\d)", r"e\1", text) for text in small}  # as browsers write it
    tie = Decimal(value).quantize(Decimal("1e-4"), ROUND_HALF_UP)  # as browsers round it
    return {f"{value:.4f}", f"{tie:.4f}", f"{value:+.4f}", f"{value:.0%}", *small}
