"""Configs that name files by paths relative to their own, and where a script finds them.

Such a config works only at its own place. So the script gets it there, in its workspace, with the
values that were set. Included files that the commit has are the commit's, others are copied.

    <run>/included.json    the place, the copies, and the keys of all included files
"""

import ast
import os
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import write_json
from zoerefine.base.run_dir import RunDir
from zoerefine.base.secrets import find_secret_in_config
from zoerefine.base.yaml.keys import has_key, merged, texts_in
from zoerefine.base.yaml.read import YamlError, load_yaml
from zoerefine.base.yaml.script_overrides import NEW_KEY, merge_overrides
from zoerefine.lab.launch.git.commands import GitError, git_bytes

BASES = ("_BASE_", "_base_")  # of fvcore and detectron2, of MMLab
# Other keys that include files: BASE of Swin, __include__ of RT-DETR, inherit_from, extends, ...
INCLUDING = re.compile(r"base|includ|inherit|extend|parent", re.IGNORECASE)
CONFIGS = (".yaml", ".yml", ".json")
DEFAULTS = "defaults"  # of Hydra
FILE = "included.json"
OUTSIDE = "zoerefine-config"  # the workspace's folder for a config that is in no repository
Reader = Callable[[str], bytes | None]


@dataclass(frozen=True)
class Included:
    """What a config includes.

    Attributes:
        place: the config's path in the workspace; empty: the script gets the run's copy.
        copies: the texts of included files that the commit does not have, by their paths in the
            workspace, or by the absolute paths that the config names.
        tree: the keys of the included files; None where only the script can merge them.
    """

    place: str = ""
    copies: Mapping[str, str] = field(default_factory=dict)
    tree: Mapping[str, Any] | None = field(default_factory=dict)

    def merge(self, path: Path, data: bytes, overrides: Sequence[str]) -> bytes:
        """A config with KEY VALUE words merged into it; a key may stand in an included file.

        Raises `UserError` as `merge_overrides` does.
        """
        own = read_tree(path.name, data)
        words = list(overrides)
        for place, key in enumerate(overrides[::2]):
            if not has_key(own, key) and (self.tree is None or has_key(self.tree, key)):
                words[2 * place] = NEW_KEY + key.removeprefix(NEW_KEY)
        return merge_overrides(path, data, words)

    def save(self, folder: Path) -> None:
        """Write what `read_included` reads; nothing for a config that includes nothing."""
        if self.place:
            write_json(folder / FILE, asdict(self))


def read_included(folder: Path) -> Included:
    """What the config in the folder of a run or study includes."""
    path = folder / FILE
    return Included(**RunDir(folder).read_json(path)) if path.is_file() else Included()


@dataclass(frozen=True)
class CommitFiles:
    """The files of a commit in a mirror."""

    mirror: Path
    commit: str

    def read(self, name: str) -> bytes | None:
        """A file; None where there is none of this path."""
        with suppress(GitError):
            return git_bytes("cat-file", "blob", f"{self.commit}:{name}", folder=self.mirror)
        return None

    def has_any(self, names: Sequence[str]) -> bool:
        """Whether one of these paths is a file or folder of the commit."""
        words = ("ls-tree", "--name-only", self.commit, "--", *names)
        return bool(names) and bool(git_bytes(*words, folder=self.mirror))


def find_included(
    config: Path,
    local: Path | None,
    repository: Path | None,
    commit: CommitFiles,
    data: bytes,
    always_placed: bool = False,
) -> Included:
    """What a config includes.

    Args:
        config: its path as the user gave it.
        local: where it is on this machine; None: in the commit alone.
        repository: the working tree of a local repository.
        always_placed: the config has its own place, whatever it includes.
    Raises `UserError` where an included file contains a secret, or a config has no such place.
    """
    if local is None:
        place = posixpath.normpath(config.as_posix())
        found = at_place(place, data, None, commit)
        return replace(found, place=place) if always_placed else found
    if (local.parent / FILE).is_file():  # the copy of a run, or the best of a study
        return read_included(local.parent)
    path = local.parent.resolve() / local.name
    if repository is not None and path.is_relative_to(repository):
        place = path.relative_to(repository).as_posix()
        found = at_place(place, data, repository, commit)
        return replace(found, place=place) if always_placed else found
    if always_placed:
        raise UserError(
            f"--overrides in-place: {config} is not in the repository; give one that is"
        )
    return outside(path, data)


def at_place(place: str, data: bytes, folder: Path | None, commit: CommitFiles) -> Included:
    """What a config in a repository includes. One that names other files only has its place.

    Args:
        folder: where files are that the commit does not have.
    """
    committed = cache(commit.read)

    def read_file(name: str) -> bytes | None:
        found = committed(name)
        is_here = folder is not None and not name.startswith("../")
        return read(folder or Path(), name) if found is None and is_here else found

    files = dict(walk(place, data, read_file))
    if not files and not place.endswith(".py"):  # such a config may import others
        return Included(place) if names_files(place, data, commit) else Included()
    copies = {name: found for name, found in files.items() if committed(name) is None}
    return Included(place, texts(copies), bases_of(place, data, files))


def outside(path: Path, data: bytes) -> Included:
    """What a config outside of every repository includes. All of it is copied."""
    files = dict(walk(path.name, data, lambda name: read(path.parent, name)))
    if not files:
        return Included()
    up = max(name.split("/").count("..") for name in files)
    folders = path.parent.parts
    folder = posixpath.join(OUTSIDE, *folders[len(folders) - up :])

    def place_of(name: str) -> str:
        return posixpath.normpath(posixpath.join(folder, name))  # an absolute path stays

    copies = {place_of(name): found for name, found in files.items()}
    return Included(place_of(path.name), texts(copies), bases_of(path.name, data, files))


def read(folder: Path, name: str) -> bytes | None:
    """The bytes of a file below a folder, or of an absolute path; None where there is none."""
    try:
        return (folder / name).read_bytes()
    except OSError:
        return None


def texts(copies: Mapping[str, bytes]) -> dict[str, str]:
    """Files as texts. Raises `UserError` where one contains a secret, which the run would keep."""
    for name, data in copies.items():
        if secret := find_secret_in_config(data):
            raise UserError(
                f"included config {name} contains the secret of {secret}: let the job read it "
                "from the environment"
            )
    try:
        return {name: data.decode() for name, data in copies.items()}
    except UnicodeDecodeError as error:
        raise UserError(f"an included config is not valid UTF-8: {error}") from None


def walk(place: str, data: bytes, read_file: Reader) -> Iterator[tuple[str, bytes]]:
    """Every file that a config includes, and those that these include, by their paths."""
    known, found = {place}, [(place, data)]
    for outer, content in found:  # grows while we go through it
        for name in references(outer, content):
            path = path_of(outer, name)
            inner = None if path in known else read_file(path)
            if inner is not None:
                known.add(path)
                found.append((path, inner))
                yield path, inner


def path_of(place: str, name: str) -> str:
    """The path of a file that the config at a place names."""
    joined = posixpath.join(posixpath.dirname(place), os.path.expanduser(name))
    return posixpath.normpath(joined)


def references(place: str, data: bytes) -> list[str]:
    """The names that a config may include files by; not each of them need exist."""
    if place.endswith(".py"):
        return list(python_references(data))
    tree = read_tree(place, data)
    names = [*base_names(tree), *other_names(tree)]
    for one in listed(tree.get(DEFAULTS)):
        pairs = one.items() if isinstance(one, Mapping) else [("", one)]
        for group, choices in pairs:
            stems = [posixpath.join(str(group).split(" ")[-1], str(x)) for x in listed(choices)]
            names += [name for stem in stems for name in (stem, f"{stem}.yaml")]
    return names


def base_names(tree: Mapping[str, Any]) -> list[str]:
    """The files that a config names as its bases."""
    return [one for key in BASES for one in listed(tree.get(key)) if isinstance(one, str)]


def other_names(tree: Mapping[str, Any]) -> list[str]:
    """The files that a config may include by other keys, whose rules only its script knows."""
    return [
        value
        for (*_, key), value in texts_in(tree)
        if key not in BASES and INCLUDING.search(key) and value.endswith(CONFIGS)
    ]


def names_files(place: str, data: bytes, commit: CommitFiles) -> bool:
    """Whether a value of a config is a path relative to it: `../...`, or one in the commit."""
    names = [value for _, value in texts_in(read_tree(place, data)) if is_path(value)]
    paths = [path_of(place, name) for name in names]
    inner = [path for path in paths if not path.startswith("..")]
    return any(name.startswith("../") for name in names) or commit.has_any(inner)


def is_path(text: str) -> bool:
    """Whether a text may be a relative path."""
    return bool(re.fullmatch(r"(?![/~:]|\w+://)\S*(/|\.\w)\S*", text))


def listed(value: Any) -> list[Any]:
    """A list, or a single value as one."""
    return value if isinstance(value, list) else [] if value is None else [value]


def python_references(data: bytes) -> Iterator[str]:
    """What a config in Python includes: `_base_ = ...`, or imports relative to it."""
    with suppress(SyntaxError, ValueError):
        for node in ast.walk(ast.parse(data)):
            if isinstance(node, ast.ImportFrom) and node.level:
                yield "../" * (node.level - 1) + (node.module or "").replace(".", "/") + ".py"
            elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in BASES:
                yield from (str(one) for one in listed(ast.literal_eval(node.value)))


def read_tree(place: str, data: bytes) -> dict[str, Any]:
    """The keys of a YAML or JSON config; empty for another file, or a damaged one."""
    if not place.endswith(CONFIGS):
        return {}
    try:
        tree = load_yaml(data.decode(), has_switches=True)  # JSON is YAML
    except (UnicodeDecodeError, YamlError):
        return {}
    return tree if isinstance(tree, dict) else {}


def bases_of(place: str, data: bytes, files: Mapping[str, bytes]) -> dict[str, Any] | None:
    """The keys of a config's bases, later ones over earlier ones; None where they are not known."""
    tree = read_tree(place, data)
    if place.endswith(".py") or DEFAULTS in tree:
        return None
    if any(path_of(place, name) in files for name in other_names(tree)):
        return None
    found: dict[str, Any] = {}
    for path in (path_of(place, name) for name in base_names(tree)):
        if path not in files:
            return None
        above = bases_of(path, files[path], files)
        if above is None:
            return None
        found = merged(merged(found, above), read_tree(path, files[path]))
    return {key: value for key, value in found.items() if key not in BASES}
