"""The page on which a room is measured: in a real browser, and its requests."""

import csv
import http.client
import json
import shutil
from pathlib import Path
from threading import Event
from urllib.parse import urlsplit

import cv2
import numpy as np
import pytest

from tests.depth.measure.conftest import TOKEN, predicted_u16
from zoerefine.base.errors import UserError
from zoerefine.depth.infer.room import Room
from zoerefine.depth.measure.server import Recording


def rows():
    with open("room.csv", newline="") as file:
        return list(csv.DictReader(file))


class Page:
    """The page in the browser."""

    def __init__(self, browser, url, wait_until):
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        self.browser, self.wait_until = browser, wait_until
        self.actions, self.keys = ActionChains, Keys
        browser.set_window_size(1200, 1000)
        browser.get(url)
        wait_until(lambda: self.text("pixel").startswith("x 32, y 24"))

    def find(self, name):
        return self.browser.find_element("id", name)

    def text(self, name):
        return self.find(name).text

    def press(self, *keys):
        """Keys for whatever has the focus."""
        self.browser.switch_to.active_element.send_keys(*keys)

    def click(self, x, y):
        """Click the middle of a pixel."""
        picture = self.find("picture")
        size, natural = picture.size, (64, 48)
        at = [(one + 0.5) / count * size[side] - size[side] / 2 for one, count, side in zip(
            (x, y), natural, ("width", "height"), strict=True
        )]  # fmt: skip
        self.actions(self.browser).move_to_element_with_offset(picture, *map(round, at)).click(
        ).perform()  # fmt: skip

    def shows(self, name, words):
        self.wait_until(lambda: words in self.text(name))


def test_a_room_is_measured_with_the_mouse_and_with_keys_alone(browser, serve, wait_until):
    page = Page(browser, serve(), wait_until)
    keys = page.keys
    page.shows("calibration", "Nothing measured yet")
    page.shows("advice", "Most helpful next: measure something")
    page.browser.execute_script("choose('a')")
    page.click(40, 30)
    page.press("1.9", keys.ENTER)
    page.shows("calibration", "1 measured. Factor ")
    assert rows() == [{"frame": "a", "x": "40", "y": "30", "metres": "1.9"}]
    assert Room.load("room.json").height == 48

    # By keys: the cursor moves from there, in the next frame.
    page.press(keys.PAGE_DOWN)
    page.shows("pixel", "x 40, y 30: predicted 3.10 m")
    page.press(keys.ARROW_LEFT, keys.ARROW_UP, keys.SHIFT + keys.ARROW_UP, keys.NULL)
    page.shows("pixel", "x 39, y 19: ")
    page.press(keys.ENTER)
    page.press("200", keys.ENTER)
    page.shows("fault", "it seems to be in centimetres; write metres")
    assert len(rows()) == 1
    page.press(keys.CONTROL + "a")
    page.press("2,0", keys.ENTER)
    page.shows("calibration", "2 measured")
    assert rows()[1] == {"frame": "b", "x": "39", "y": "19", "metres": "2.0"}
    assert page.text("fault") == ""
    page.press(keys.DELETE)
    page.shows("calibration", "1 measured")
    assert [row["frame"] for row in rows()] == ["a"]

    page.find("go").click()
    frame = page.find("frame").get_property("value")
    assert f"of frame {frame}, near" in page.text("advice")
    page.find("measurements").find_element("css selector", "button").click()
    page.shows("calibration", "Nothing measured yet")
    assert rows() == [] and not Path("room.json").exists()
    assert all("400" in line["message"] for line in browser.get_log("browser"))


def test_a_measurement_that_disagrees_is_marked(browser, serve, wait_until):
    lines = ["frame,x,y,metres"]
    for x, y, name in ((10, 10, "a"), (50, 10, "a"), (30, 40, "b"), (12, 30, "b"), (40, 20, "c")):
        lines.append(f"{name},{x},{y},{0.8 * predicted_u16(name)[y, x] / 256:.3f}")
    Path("room.csv").write_text("\n".join([*lines, "c,20,20,9.5"]) + "\n")
    page = Page(browser, serve(), wait_until)
    page.shows("measurements", "room.csv line 7: 9.5 m hardly counts")
    page.browser.execute_script("choose('c')")
    wait_until(lambda: len(browser.find_elements("css selector", "#marks circle.doubt")) == 1)


def test_nothing_is_measured_in_a_frame_before_its_picture_is_shown(
    browser, serve, wait_until, monkeypatch
):
    page, shown, is_read = Page(browser, serve(), wait_until), Recording.shown, Event()

    def late(recording, name):
        assert name == "a" or is_read.wait(60)
        return shown(recording, name)

    monkeypatch.setattr(Recording, "shown", late)
    page.browser.execute_script("choose('a')")
    page.click(40, 30)
    page.press(page.keys.ESCAPE, page.keys.PAGE_DOWN)
    page.press(page.keys.ENTER)
    page.click(20, 10)
    assert not page.find("form").is_displayed() and page.text("pixel") == "loading b"
    assert page.find("picture").value_of_css_property("visibility") == "hidden"
    is_read.set()
    page.shows("pixel", "x 40, y 30: predicted 3.10 m")
    page.press(page.keys.ENTER)
    page.press("1.9", page.keys.ENTER)
    page.shows("calibration", "1 measured")
    assert rows() == [{"frame": "b", "x": "40", "y": "30", "metres": "1.9"}]


TAG = "<img src=x onerror=\"document.title='owned'\">"
ODD = ("a  b", " lead", "trail ", TAG, "a&amp;b?c=#%41", "__proto__", "=1+2", 'q"uote, too')

LINES = "return [...document.querySelectorAll('#measurements li')].map((line) => line.textContent)"
MEASURED = ", x 40 y 30: 1.9 m Remove"


def test_frames_of_odd_names_are_chosen_and_measured(browser, serve, wait_until):
    for name in ODD:
        for folder, suffix in (("rgb", ".jpg"), ("zoe", ".png")):
            shutil.copyfile(f"{folder}/a{suffix}", f"{folder}/{name}{suffix}")
    page = Page(browser, serve(), wait_until)
    for name in ODD:
        browser.execute_script("choose(arguments[0])", name)
        assert page.find("frame").get_property("value") == name
        page.click(40, 30)
        page.press("1.9", page.keys.ENTER)
        wait_until(lambda name=name: browser.execute_script(LINES)[-1:] == [f"{name}{MEASURED}"])
    assert [row["frame"] for row in rows()] == list(ODD)
    assert browser.title != "owned" and browser.get_log("browser") == []


@pytest.mark.parametrize("name", ["new\nline", "\x1b[31mred", "\udcff"], ids=ascii)
def test_a_frame_whose_name_no_address_can_hold_is_named(recording, serve, name):
    for folder, suffix in (("rgb", ".jpg"), ("zoe", ".png")):
        shutil.copyfile(f"{folder}/a{suffix}", f"{folder}/{name}{suffix}")
    with pytest.raises(UserError) as error:
        serve()
    assert f"the frame {name!a} has control characters or is not UTF-8" in str(error.value)


class Client:
    """Requests as another program makes them."""

    def __init__(self, url):
        self.place, self.session = urlsplit(url), ""

    def __call__(self, path, body=None, token=TOKEN, kind="application/json", **headers):
        """The status and the body of an answer, as JSON where it is that."""
        if isinstance(body, dict):  # as the page that was loaded first
            self.session = self.session or self("/state")[1]["session"]
            body = {"session": self.session} | body
        client = http.client.HTTPConnection(self.place.hostname, self.place.port, timeout=60)
        cookie = {"Cookie": f"zoerefine-{self.place.port}={token}", "Content-Type": kind}
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        client.request("POST" if data is not None else "GET", path, data, cookie | headers)
        answer = client.getresponse()
        found = answer.read()
        assert answer.getheader("Content-Security-Policy") or answer.status == 403
        is_json = answer.getheader("Content-Type") == "application/json"
        return answer.status, json.loads(found) if is_json else found


@pytest.fixture
def ask(serve):
    return Client(serve("--intrinsics", 50, 50, 31.5, 23.5))


def test_only_the_printed_address_is_answered(ask):
    new = {"frame": "a", "x": 40, "y": 30, "metres": "1.9"}
    for refused in (
        ask("/state", token="another"),
        ask("/state", Host="evil.example"),
        ask("/add", new, Origin="http://evil.example"),
        ask("/frame.jpg?name=a", token=""),
    ):
        assert refused[0] == 403
    assert not Path("room.csv").exists()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"x": 20, "y": 60}, "outside the picture of 64x48; x and y seem to be swapped"),
        ({"x": 0, "y": 0}, "no depth is predicted at x 0, y 0"),
        ({"metres": "190"}, "it seems to be in centimetres; write metres"),
        ({"frame": "../a"}, "there is no frame '../a'"),
        ({"along": "tape"}, "along must be axis or ray"),
    ],
)
def test_what_is_no_measurement_changes_nothing(ask, values, words):
    good = {"frame": "a", "x": 40, "y": 30, "metres": "1.9"}
    assert ask("/add", good)[0] == 200
    before = Path("room.csv").read_bytes()
    status, found = ask("/add", good | {"x": 41} | values)
    assert (status, words in found["fault"]) == (400, True), found
    assert Path("room.csv").read_bytes() == before


def test_other_requests_are_refused(ask):
    assert ask("/../../etc/passwd")[0] == 404
    assert ask("/frame.jpg?name=../a")[0] == 400
    assert ask("/frame.jpg")[0] == 400
    assert ask("/pixel?name=a&x=1&y=ten")[0] == 400
    assert ask("/add", b"[]")[0] == 400
    assert ask("/add", b"frame=a", kind="application/x-www-form-urlencoded")[0] == 400
    assert ask("/add", b"{" + b" " * 10**6)[0] == 413
    assert ask("/remove", {"number": 0})[0] == 400


def test_a_page_of_another_command_changes_nothing(serve, ask):
    """A tab that stayed open, at a port that another command serves now."""
    new = {"frame": "a", "x": 40, "y": 30, "metres": "1.9"}
    state = ask("/add", new)[1]
    before = Path("room.csv").read_bytes()
    now = Client(serve())
    now.session = ask.session
    for path, change in (("/remove", state["measurements"][0]), ("/add", new | {"x": 41})):
        status, found = now(path, change)
        assert (status, "load it again" in found["fault"]) == (400, True), found
    assert Path("room.csv").read_bytes() == before


def test_a_measurement_is_removed_only_if_it_is_the_one_that_is_shown(ask):
    ask("/add", {"frame": "a", "x": 40, "y": 30, "metres": "1.9"})
    shown = ask("/add", {"frame": "b", "x": 40, "y": 30, "metres": "2"})[1]["measurements"]
    assert ask("/remove", shown[0])[0] == 200  # in another tab
    status, found = ask("/remove", shown[0])
    assert (status, "load the page again" in found["fault"]) == (400, True), found
    assert [row["frame"] for row in rows()] == ["b"]


def test_a_change_answers_with_calibration_interval_and_advice(ask):
    Path("room.csv").write_text("frame,x,y,metres,note\na,10,10,1.2,door\n")
    state = ask("/add", {"frame": "b", "x": 40, "y": 30, "metres": "1.9", "along": "ray"})[1]
    assert [one["along_ray"] for one in state["measurements"]] == [False, True]
    factor = state["calibration"]["factor"]
    assert factor["low"] < factor["middle"] < factor["high"]
    assert state["next"]["words"].startswith("something ")
    assert "a,10,10,1.2,door," in Path("room.csv").read_text()
    assert Room.load("room.json").intrinsics.fx == 50

    # The same pixel again replaces it. A file that another program changed is read again.
    state = ask("/add", {"frame": "b", "x": 40, "y": 30, "metres": "2.1"})[1]
    assert [one["metres"] for one in state["measurements"]] == [1.2, 2.1]
    found = ask("/pixel?name=b&x=40&y=30")[1]
    assert found["low_m"] < found["corrected_m"] < found["high_m"]
    Path("room.csv").write_text("frame,x,y,metres\n")
    assert ask("/state")[1]["calibration"] is None


def test_a_frame_is_shown_as_it_is_read(ask):
    status, jpeg = ask("/frame.jpg?name=c")
    assert status == 200
    shown = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    assert np.abs(shown.astype(int) - cv2.imread("rgb/c.jpg")).mean() < 4
