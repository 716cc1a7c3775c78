"""Bundles that are programs: one from elsewhere runs nothing before the user accepts it."""

import subprocess
import sys

import pytest

from zoerefine.base.errors import UserError
from zoerefine.depth.exporting.bundle.trust import MAX_REMEMBERED, is_trusted, require_trust, trust

DIGEST, OTHER = "1" * 64, "2" * 64
MANIFEST = {"run": "20261122-x", "commit": "a" * 40, "digest": DIGEST, "engine": "torchscript"}


def test_an_accepted_program_is_remembered_by_its_digest(trust_list):
    require_trust("foreign.ts", MANIFEST, accept=True)
    require_trust("renamed.ts", MANIFEST, accept=False)
    with pytest.raises(UserError, match="--trust"):
        require_trust("foreign.ts", MANIFEST | {"digest": OTHER}, accept=False)
    trust(OTHER, "other.ts")
    trust(OTHER, "other.ts")
    assert len(trust_list.read_text().splitlines()) == 2


def test_removing_its_line_ends_the_trust(trust_list):
    trust(DIGEST, "foreign.ts")
    trust_list.write_text("")
    assert not is_trusted(DIGEST)


def test_a_damaged_list_trusts_nothing_more_and_still_takes_lines(trust_list):
    trust_list.parent.mkdir()
    trust_list.write_bytes(b"\xff\xfe\0garbage\n\n \n")
    assert not is_trusted(DIGEST)
    trust(DIGEST, "foreign.ts")
    assert is_trusted(DIGEST)


def test_the_list_keeps_the_newest_lines_up_to_its_limit(trust_list):
    trust_list.parent.mkdir()
    trust_list.write_text("".join(f"{number} x\n" for number in range(MAX_REMEMBERED)))
    trust(DIGEST, "foreign.ts")
    lines = trust_list.read_text().splitlines()
    assert len(lines) == MAX_REMEMBERED
    assert lines[0] == "1 x"
    assert is_trusted(DIGEST)


def test_where_the_list_cannot_be_written_the_command_goes_on_with_one_warning(
    trust_list, tmp_path, monkeypatch, capsys
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("ZOEREFINE_TRUSTED", str(tmp_path / "file" / "trusted.txt"))
    require_trust("foreign.ts", MANIFEST, accept=True)
    assert is_trusted(DIGEST)
    trust(OTHER, "other.ts")
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 1
    assert "no trusted bundle can be remembered" in warnings[0]


def test_the_list_is_in_the_state_folder_of_the_user(tmp_path, monkeypatch):
    monkeypatch.delenv("ZOEREFINE_TRUSTED", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    trust(DIGEST, "foreign.ts")
    assert (tmp_path / "home" / ".local" / "state" / "zoerefine" / "trusted.txt").exists()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert not is_trusted(DIGEST)
    trust(DIGEST, "foreign.ts")
    assert (tmp_path / "xdg" / "zoerefine" / "trusted.txt").exists()


def test_a_claim_cannot_add_lines_or_escapes_to_a_message(trust_list):
    claims = {"run": "x\n\x1b[31merror: " + "y" * 500, "commit": 7, "engine": "x"}
    with pytest.raises(UserError) as caught:
        require_trust("foreign.ts", MANIFEST | claims, accept=False)
    assert "\x1b" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "y" * 100 not in str(caught.value)


def test_processes_that_trust_at_the_same_time_lose_no_line(trust_list):
    code = (
        "import sys; from zoerefine.depth.exporting.bundle.trust import trust\n"
        "for number in sys.argv[1:]: trust(number, 'x.ts')"
    )
    numbers = [f"{number:064x}" for number in range(40)]
    started = [
        subprocess.Popen([sys.executable, "-c", code, *numbers[start::4]]) for start in range(4)
    ]
    assert [process.wait() for process in started] == [0] * 4
    assert all(map(is_trusted, numbers))
