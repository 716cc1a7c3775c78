"""The faults of a disk, of permissions or of a path, as a line for the user."""

import errno
import os
import re

# Faults of a disk, of permissions or of a path: nothing that our code could do better.
STORAGE_FAULTS = {
    errno.EACCES,
    errno.EDQUOT,
    errno.EEXIST,
    errno.EFBIG,
    errno.EIO,
    errno.EISDIR,
    errno.ELOOP,
    errno.EMFILE,
    errno.ENAMETOOLONG,
    errno.ENFILE,
    errno.ENOSPC,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
    errno.ESTALE,
}
FULL = {errno.EDQUOT, errno.EFBIG, errno.ENOSPC}
SQLITE_FAULTS = ("SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY")


def storage_fault(error: BaseException | None) -> str:
    """The fault of a disk, of permissions or of a path behind an exception, as a line, or empty."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in STORAGE_FAULTS:
            where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
            hint = "; make room, then run the same command again" if error.errno in FULL else ""
            return f"{where}{os.strerror(error.errno)}{hint}"
        if isinstance(error, FileNotFoundError) and not error.filename and not _has_folder():
            return "the current folder was removed: change to another one"
        if isinstance(error, UnicodeEncodeError) and error.reason.startswith("surrogates"):
            name = error.object[max(0, error.start - 60) : error.end + 20]
            return f"a name that is not UTF-8 cannot be recorded: rename what {name!a} names"
        if rust := re.search(r"\(os error (\d+)\)", str(error)):  # of safetensors
            return storage_fault(OSError(int(rust[1]), ""))
        if getattr(error, "sqlite_errorname", "").startswith(SQLITE_FAULTS):
            return f"the study's database cannot be used: {error}"
        error = error.__cause__ or error.__context__
    return ""


def _has_folder() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True
