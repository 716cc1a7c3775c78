"""The helpers of tests/machine_faults.py do what they say."""

import sys

from tests.machine_faults import IS_ROOT, UID

WRITE = "import sys; open(sys.argv[1], 'w').write('x' * 10_000)"


def test_the_other_user_owns_a_folder_and_has_no_rights_of_root(other_user, tmp_path):
    made = other_user.folder / "made"
    assert other_user.run([sys.executable, "-c", WRITE, made]).returncode == 0
    assert made.stat().st_uid == UID or not IS_ROOT
    made.chmod(0o400)
    denied = other_user.run([sys.executable, "-c", WRITE, made])
    assert "PermissionError" in denied.stderr
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_text("x")
    copy = other_user.copy(tmp_path / "tree")
    assert other_user.run([sys.executable, "-c", WRITE, copy / "file"]).returncode == 0


def test_nothing_can_be_written_to_a_disk_that_is_full_or_read_only(other_user, small_disk):
    def write(name):
        return other_user.run([sys.executable, "-c", WRITE, small_disk.path / name])

    assert write("before").returncode == 0
    small_disk.fill()
    assert "OSError" in write("full").stderr
    small_disk.make_room()
    assert write("full").returncode == 0
    small_disk.read_only()
    assert write("full").returncode == 1
    assert write("new").returncode == 1
    small_disk.clear()
    assert not list(small_disk.path.iterdir())
