"""The address of a repository: a folder or a URL that is safe to give to git.

Allowed are local folders, `file://`, `http(s)://`, `ssh://` and `git://` URLs, and the SSH form
`host:path`. An address comes from a user or from a `.gitmodules` file. It must not look like an
option or name a program to run, and its password must not get into a command line or a file.
"""

import os
import posixpath
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from zoerefine.base.errors import UserError
from zoerefine.base.secrets import hide_secrets, register_secret
from zoerefine.lab.launch.git.commands import CURE, GitError, git

URL = re.compile(r"(file|https?|ssh|git)://[^\s?#]+")
SSH_FORM = re.compile(r"(\w[\w.-]*@)?\w[\w.-]*:(?!:|//)[^\s-][^\s]*")
MAX_NAME = 80  # a folder is named after it
LOGIN_VARIABLES = ("ZOEREFINE_GIT_ORIGIN", "ZOEREFINE_GIT_USER", "ZOEREFINE_GIT_PASSWORD")
# Git runs this to get the user and password, so they are in no command line and no file.
CREDENTIAL_HELPER = (
    '!f() { test "$1" = get && printf "username=%s\\npassword=%s\\n"'
    ' "$ZOEREFINE_GIT_USER" "$ZOEREFINE_GIT_PASSWORD"; }; f'
)


@dataclass(frozen=True)
class RepositoryAddress:
    """Where commits are fetched from.

    Attributes:
        url: the address for git and for records, without credentials.
        folder: the working tree of a local repository; None for a URL or a bare repository.
        user, password: the credentials that the URL contained.
    """

    url: str
    folder: Path | None = None
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        """The last part of the path, without a `.git` suffix."""
        last = re.split(r"[/:]", self.url.rstrip("/"))[-1]
        name = re.sub(r"[^\w.-]", "_", last.removesuffix(".git")).lstrip(".-")
        return name.encode("ascii", "replace").decode().replace("?", "_")[:MAX_NAME] or "repository"

    @property
    def is_local(self) -> bool:
        """Whether the repository is on this machine."""
        return self.url.startswith(("/", "file://"))

    def login(self) -> dict[str, str]:
        """The credentials as environment variables, for the launchers that a queue starts."""
        if not self.user:
            return {}
        return dict(
            zip(LOGIN_VARIABLES, (origin_of(self.url), self.user, self.password), strict=True)
        )

    def environment(self) -> dict[str, str]:
        """The environment variables with which git uses the URL's credentials.

        Git gives them to the URL's own scheme, host and port alone: not to where a server
        redirects it, and not to another server that a commit names (`lfs.url` in .lfsconfig).
        """
        if not self.user:
            return {}
        scope = f"credential.{origin_of(self.url)}"
        settings = [(f"{scope}.username", self.user), (f"{scope}.helper", CREDENTIAL_HELPER)]
        if self.password:  # without one, the user's own credential helpers are asked
            settings.insert(1, (f"{scope}.helper", ""))
        variables = {"GIT_CONFIG_COUNT": str(len(settings))}
        for number, (key, value) in enumerate(settings):
            variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        return variables | self.login()


def parse_address(text: str) -> RepositoryAddress:
    """Check a repository argument. Raises `UserError` for an address that is not allowed."""
    shown = hide_secrets(text)
    if text.startswith("-") or not text or any(ord(c) < 32 for c in text):
        raise UserError(f"--repo {shown!r} is not a URL or a folder")
    folder = existing_folder(text)
    if folder is not None:
        return _local(folder)
    if text.startswith("file://"):
        return RepositoryAddress(text)
    if URL.fullmatch(text):
        return _remote(text)
    if SSH_FORM.fullmatch(text):
        return RepositoryAddress(text)
    raise UserError(
        f"--repo {shown!r} is neither an existing folder nor a file, http(s), ssh or git URL"
    )


def existing_folder(text: str) -> Path | None:
    """The folder of this name; None where there is none. Raises `UserError` for a file."""
    try:
        path = Path(text).expanduser().resolve()
        if path.is_file():
            raise UserError(f"--repo {path} is a file: give a folder or a URL")
        return path if path.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long; ~nobody; a NUL
        return None


def _local(folder: Path) -> RepositoryAddress:
    try:
        bare = git("rev-parse", "--is-bare-repository", folder=folder, foreign=True) == "true"
        shown = "." if bare else git("rev-parse", "--show-toplevel", folder=folder, foreign=True)
        top = folder / shown
    except GitError as error:
        if CURE in str(error):
            raise UserError(f"--repo {folder} belongs to another user: {error}") from None
        raise UserError(f"--repo {folder} is a folder without a git repository") from None
    if not folder.is_relative_to(top):
        raise UserError(f"--repo {folder}: its core.worktree names another folder, {top}")
    return RepositoryAddress(str(top), None if bare else top)


def _remote(text: str) -> RepositoryAddress:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        raise UserError(f"--repo {hide_secrets(text)!r} is not a valid URL: {error}") from None
    login, _, host = parts.netloc.rpartition("@")
    user, _, password = map(unquote, login.partition(":"))
    if not host or host.startswith("-") or any(ord(c) < 32 for c in user + password):
        raise UserError(f"--repo {hide_secrets(text)!r} is not a URL or a folder")
    if not login and origin_of(text) == os.environ.get(LOGIN_VARIABLES[0]):
        user, password = (os.environ.get(name, "") for name in LOGIN_VARIABLES[1:])
    register_secret(password)
    if parts.scheme == "ssh":  # the user is part of the address, and ssh accepts no password
        return RepositoryAddress(
            urlunsplit(parts._replace(netloc=f"{user}@{host}" if user else host))
        )
    register_secret(user)
    return RepositoryAddress(urlunsplit(parts._replace(netloc=host)), user=user, password=password)


def origin_of(url: str) -> str:
    """A URL's scheme, host and port, to which its credentials belong."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}"


def submodule_address(parent: RepositoryAddress, url: str) -> RepositoryAddress:
    """The address of a submodule; a relative URL is relative to its parent's.

    Raises `UserError` for an address that is not allowed. A repository that came over the
    network must not name a folder of this machine.
    """
    if url.startswith(("./", "../")):
        head, colon, path = _split_path(parent.url)
        url = head + colon + posixpath.normpath(posixpath.join(path.rstrip("/"), url))
    if not parent.is_local and not (URL.fullmatch(url) or SSH_FORM.fullmatch(url)):
        raise UserError(f"--repo {parent.url}: its submodule's URL {url!r} is not allowed")
    address = parse_address(url)
    if address.is_local and not parent.is_local:
        raise UserError(
            f"--repo {parent.url}: its submodule's URL {url!r} names a folder of this machine"
        )
    same_origin = origin_of(address.url) == origin_of(parent.url)
    if parent.user and not address.user and same_origin and address.url.startswith("http"):
        return RepositoryAddress(address.url, address.folder, parent.user, parent.password)
    return address


def _split_path(url: str) -> tuple[str, str, str]:
    if "://" in url:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc}", "", parts.path
    if url.startswith("/"):
        return "", "", url
    return url.partition(":")
