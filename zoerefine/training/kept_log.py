"""log.txt of a run that no launcher has started: the messages, progress and errors of its job."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from zoerefine.errors import UserError
from zoerefine.launch.job_output import OutputLog
from zoerefine.progress import heard_by
from zoerefine.run_dir import RunDir, run_from_launcher


@contextmanager
def kept_log(run: RunDir) -> Iterator[None]:
    """While entered, append every message to log.txt; a launcher does that for its jobs."""
    if run_from_launcher() == run:
        yield
        return
    with open(run.log_file, "ab") as file:
        log = OutputLog(file)

        def keep(text: str) -> None:
            for line in text.splitlines():
                log.write_line(line.encode(errors="surrogateescape"))
            file.flush()

        with heard_by(keep):
            try:
                yield
            except UserError as error:
                keep(f"error: {error}")
                raise
            except KeyboardInterrupt:
                keep("interrupted")
                raise
            except Exception:
                keep(traceback.format_exc())
                raise
