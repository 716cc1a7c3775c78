"""Draw the pictures of the pages anew: python docs/pictures.py

The graph, the report page and the list of runs are of the script of tutorial-own-script.md at four
learning rates with five seeds each; the profile is of the demo's config. It needs Chromium
(`.ci/install` installs it). docs/stream.md and README.md show what examples/real_frame.py draws.
"""

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
RATES = "0.05", "0.1", "0.15", "0.2"
DATE = "2026-11-23T00:00:00+00:00"  # of the commit, whose hash the graph shows
COLUMNS, LINES = 90, 24  # of the terminal
WATCHED_S = 3  # the page is drawn several times meanwhile
REDRAWN = b"\x1b[H"  # rich puts the cursor here before it draws the page again


def main() -> None:
    """Make the runs, and draw."""
    with tempfile.TemporaryDirectory(prefix="pictures-") as folder:
        place = Path(folder)
        os.environ |= {"ZOEREFINE_HOME": str(place / "home"), "HOME": folder}
        os.environ |= dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), DATE)
        repository = make_runs(place / "digits")
        report = repository / "report"
        zoerefine(repository, "analyze", "runs/train", "--out", report, "--metric", "error")
        shutil.copy(report / "overview.png", IMAGES / "overview.png")
        screenshot(report / "report.html", IMAGES / "report.png", 1100, 900)
        watch_page(repository, place / "watch.html")
        screenshot(place / "watch.html", IMAGES / "watch.png", 830, 320)
        profile(place)
        fill_notebook(place)


def fill_notebook(folder: Path) -> None:
    """Store the notebook's outputs, without progress."""
    import nbclient
    import nbformat

    path = ROOT / "examples" / "quickstart.ipynb"
    notebook = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=900, kernel_name="python3", resources=place).execute()
    for cell in notebook.cells:
        outputs = cell.get("outputs", [])
        if outputs:
            cell.outputs = [one for one in outputs if one.get("name") != "stderr"]
        cell.get("metadata", {}).pop("execution", None)  # times
    nbformat.write(notebook, path)


def zoerefine(folder: Path, *words: object) -> None:
    """Run a command."""
    command = [sys.executable, "-m", "zoerefine", *map(str, words)]
    subprocess.run(command, cwd=folder, check=True)


def make_runs(folder: Path) -> Path:
    """A repository with the tutorial's script, and its runs."""
    page = (ROOT / "docs" / "tutorial-own-script.md").read_text()
    script = re.search(r"^```python\n# train\.py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert script
    folder.mkdir()
    (folder / "train.py").write_text(script[1])
    git = ["git", "-c", "user.name=me", "-c", "user.email=me@localhost"]
    subprocess.run([*git, "init", "--quiet"], cwd=folder, check=True)
    subprocess.run([*git, "add", "train.py"], cwd=folder, check=True)
    subprocess.run([*git, "commit", "--quiet", "--message", "A script"], cwd=folder, check=True)
    for rate in RATES:
        job = ("--repo", ".", "--commit", "HEAD", "--module", "train.py", "--seed-key", "seed")
        zoerefine(folder, "run", *job, "--seeds", "0:5", "lr", rate)
    return folder


def watch_page(folder: Path, path: Path) -> None:
    """What `runs --watch` shows in a terminal, as a page."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.environ |= {"COLUMNS": str(COLUMNS), "LINES": str(LINES), "TERM": "xterm-256color"}
        command = [sys.executable, "-m", "zoerefine", "runs", "--watch", "--metric", "error"]
        os.execv(sys.executable, command)
    time.sleep(WATCHED_S)
    os.kill(process, signal.SIGINT)
    shown = b""
    while part := read(terminal):
        shown += part
    first = shown.split(REDRAWN)[2].decode().replace("\r", "")  # after an empty one
    console = Console(record=True, width=COLUMNS, file=StringIO())
    console.print(Text.from_ansi(first))
    path.write_text(console.export_html())


def read(terminal: int) -> bytes:
    """What the terminal shows next; nothing at its end."""
    try:
        return os.read(terminal, 65536)
    except OSError:  # the process has closed it
        return b""


def profile(folder: Path) -> None:
    """A profile of the demo's config."""
    zoerefine(folder, "data", "synthesize", "world", "--scenes", 8, "--clips", 1, "--frames", 24)
    words = ("DATA.ROOT", "world", "CACHE.ROOT", "caches", "RUN.ROOT", "runs")
    zoerefine(folder, "profile", "--config", ROOT / "configs" / "demo.yaml", *words)
    (picture,) = folder.rglob("profile*.png")
    shutil.copy(picture, IMAGES / "profile.png")


def screenshot(page: Path, path: Path, width: int, height: int) -> None:
    """A picture of a page's top."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or "google-chrome"
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
    size = (f"--window-size={width},{height}", f"--screenshot={path}")
    command = [chromium, *options, *size, page.as_uri()]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
