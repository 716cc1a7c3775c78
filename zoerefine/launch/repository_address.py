"""Where a repository is: a folder or a URL that is safe to hand to git, without its credentials.

A source is a local folder, a `file://`, `http(s)://`, `ssh://` or `git://` URL, or the SSH form
`host:path`. It comes from a user or from a `.gitmodules`: none may look like an option, name a
helper program, or carry a password into a command line or a file.
"""

import os
import posixpath
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from zoerefine.errors import UserError
from zoerefine.launch.git_commands import GitError, git
from zoerefine.launch.redaction import hide_secrets, keep_secret

URL = re.compile(r"(file|https?|ssh|git)://[^\s?#]+")
SSH_FORM = re.compile(r"(\w[\w.-]*@)?\w[\w.-]*:(?!:|//)[^\s-][^\s]*")
# Git asks this for the user and password: they stand in no command line and in no file.
LOGIN = ("ZOEREFINE_GIT_HOST", "ZOEREFINE_GIT_USER", "ZOEREFINE_GIT_PASSWORD")
HELPER = (
    '!f() { test "$1" = get && printf "username=%s\\npassword=%s\\n"'
    ' "$ZOEREFINE_GIT_USER" "$ZOEREFINE_GIT_PASSWORD"; }; f'
)


@dataclass(frozen=True)
class RepositoryAddress:
    """Where commits come from.

    Attributes:
        url: what git is given, and what is written down: without credentials.
        folder: the working tree, where the source is a local one.
        user, password: the credentials that the URL held.
    """

    url: str
    folder: Path | None = None
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        """The repository's name: the last part of the path, without a `.git` ending."""
        last = re.split(r"[/:]", self.url.rstrip("/"))[-1]
        return re.sub(r"[^\w.-]", "_", last.removesuffix(".git")).lstrip(".-") or "repository"

    @property
    def is_local(self) -> bool:
        """Whether the repository lies on this machine."""
        return self.url.startswith(("/", "file://"))

    def login(self) -> dict[str, str]:
        """The credentials as variables, which another launcher takes up."""
        if not self.user:
            return {}
        return dict(zip(LOGIN, (urlsplit(self.url).netloc, self.user, self.password), strict=True))

    def environment(self) -> dict[str, str]:
        """What git needs to log in with the URL's credentials."""
        if not self.user:
            return {}
        helpers = [("credential.helper", HELPER)]
        if self.password:  # else the user's own helpers may know it
            helpers.insert(0, ("credential.helper", ""))
        variables = {"GIT_CONFIG_COUNT": str(len(helpers) + 1)}
        for number, (key, value) in enumerate([("credential.username", self.user), *helpers]):
            variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        return variables | self.login()


def open_source(text: str) -> RepositoryAddress:
    """Check a repository argument. Raises `UserError` for what is none, or not allowed."""
    shown = hide_secrets(text)
    if text.startswith("-") or not text or any(ord(c) < 32 for c in text):
        raise UserError(f"--repo {shown!r} is no URL or folder")
    folder = Path(text).expanduser()
    if folder.exists():
        return _local(folder.resolve())
    if text.startswith("file://"):
        return RepositoryAddress(text)
    if URL.fullmatch(text):
        return _remote(text)
    if SSH_FORM.fullmatch(text):
        return RepositoryAddress(text)
    raise UserError(
        f"--repo {shown!r} is neither an existing folder nor a file, http(s), ssh or git URL"
    )


def _local(folder: Path) -> RepositoryAddress:
    try:
        bare = git("rev-parse", "--is-bare-repository", folder=folder) == "true"
        top = folder if bare else Path(git("rev-parse", "--show-toplevel", folder=folder))
    except GitError as error:
        reason = f" ({error})" if "dubious" in str(error) else ""
        raise UserError(f"--repo {folder} is a folder without a git repository{reason}") from None
    return RepositoryAddress(str(top), None if bare else top)


def _remote(text: str) -> RepositoryAddress:
    parts = urlsplit(text)
    login, _, host = parts.netloc.rpartition("@")
    user, _, password = map(unquote, login.partition(":"))
    if not host or host.startswith("-") or any(ord(c) < 32 for c in user + password):
        raise UserError(f"--repo {hide_secrets(text)!r} is no URL or folder")
    if not login and host == os.environ.get(LOGIN[0]):
        user, password = (os.environ.get(name, "") for name in LOGIN[1:])
    keep_secret(password)
    if parts.scheme == "ssh":  # its user is part of the address; a password ssh would not take
        return RepositoryAddress(
            urlunsplit(parts._replace(netloc=f"{user}@{host}" if user else host))
        )
    keep_secret(user)
    return RepositoryAddress(urlunsplit(parts._replace(netloc=host)), user=user, password=password)


def open_submodule(parent: RepositoryAddress, url: str) -> RepositoryAddress:
    """The source of a submodule; a relative URL starts at its parent's.

    Raises `UserError` where it is not allowed: what came over the network may not name a folder
    of this machine.
    """
    if url.startswith(("./", "../")):
        head, colon, path = _split_path(parent.url)
        url = head + colon + posixpath.normpath(posixpath.join(path.rstrip("/"), url))
    if not parent.is_local and not (URL.fullmatch(url) or SSH_FORM.fullmatch(url)):
        raise UserError(f"--repo {parent.url}: its submodule's URL {url!r} is not allowed")
    source = open_source(url)
    if source.is_local and not parent.is_local:
        raise UserError(
            f"--repo {parent.url}: its submodule's URL {url!r} names a folder of this machine"
        )
    same_host = urlsplit(source.url).netloc == urlsplit(parent.url).netloc
    if parent.user and not source.user and same_host and source.url.startswith("http"):
        return RepositoryAddress(source.url, source.folder, parent.user, parent.password)
    return source


def _split_path(url: str) -> tuple[str, str, str]:
    if "://" in url:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc}", "", parts.path
    if url.startswith("/"):
        return "", "", url
    return url.partition(":")
