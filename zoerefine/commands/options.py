"""Options that several commands share."""

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from zoerefine.base.errors import INTERRUPTED, USER_ERROR, UserError
from zoerefine.base.messages import be_quiet, say, warn
from zoerefine.base.registries import EXECUTORS
from zoerefine.base.yaml.keys import mapped

if TYPE_CHECKING:
    from zoerefine.base.config import Config
    from zoerefine.lab.launch.notify import Ending
    from zoerefine.lab.launch.queue.executor import Resources


def print_notes(bundle: Path | None, manifest: Mapping[str, Any]) -> None:
    """Say if a bundle was chosen on another processor, and what its results warn of."""
    from zoerefine.base.machine.processor import other_processor

    if note := other_processor(dict(manifest)):
        say(f"{bundle}: {note}")
    for warning in manifest.get("warnings", []):
        warn(f"{bundle}: {warning}")


def existing_config(name: str) -> Path:
    """The type of --config: a file, or else the name of an example such as `demo`."""
    if not name or name.endswith(".yaml"):
        return as_path(name)  # a file that does not exist here may be the commit's
    from zoerefine.base.config.paths import config_file

    return config_file(name)


class HelpFormat(argparse.HelpFormatter):
    """Wraps texts of one line to the terminal, and keeps texts of several lines as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text.strip():
            return "".join(indent + line for line in text.splitlines(keepends=True))
        return super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """What is wrong with the words of a command is one line."""

    def __init__(self, prog: str, description: str = "", epilog: str = "", **settings: Any) -> None:
        super().__init__(prog, None, description, epilog, formatter_class=HelpFormat, **settings)
        # argparse takes -1e-3 and -.inf, which are values of keys, for options.
        self._negative_number_matcher = re.compile(r"-(\d|\.\d|\.?inf\b)", re.IGNORECASE)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}; see {self.prog} --help\n")


class CommandParser(Parser):
    """`--help` lists the options in `usual`; `--help-all` lists all."""

    def __init__(self, prog: str, description: str, epilog: str, usual: Sequence[str]) -> None:
        super().__init__(prog, description, epilog)
        self.usual = {"--help", "--help-all", "--quiet", *usual}
        self.add_argument("--help-all", action=HelpAll, help="list every option and exit")

    def format_help(self) -> str:
        options = [one for one in self._actions if one.option_strings]
        hidden = [one for one in options if not self.usual & set(one.option_strings)]
        texts = [one.help for one in hidden]
        for one in hidden:
            one.help = argparse.SUPPRESS
        whole, self.usage = self.usage, self.short_usage()
        shown = super().format_help()
        self.usage = whole
        for one, text in zip(hidden, texts, strict=True):
            one.help = text
        return shown

    def short_usage(self) -> str:
        """The line without single options."""
        # parse_intermixed_args suppresses its words meanwhile; they are several
        marks = {"*": "[{} ...]", argparse.SUPPRESS: "[{} ...]", "?": "[{}]"}
        given = [one for one in self._actions if not one.option_strings]
        words = [marks.get(str(one.nargs), "{}").format(one.metavar) for one in given]
        return " ".join(["%(prog)s", "[OPTION ...]", *words])


class HelpAll(argparse.Action):
    """Prints the help with every option."""

    def __init__(self, **options: Any) -> None:
        super().__init__(nargs=0, default=argparse.SUPPRESS, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(argparse.ArgumentParser.format_help(parser), end="")
        parser.exit()


class BeQuiet(argparse.Action):
    """Hides progress and messages as soon as it is read."""

    def __init__(self, **options: Any) -> None:
        super().__init__(nargs=0, **options)

    def __call__(self, *_: object) -> None:
        be_quiet()


def pattern(text: str) -> str:
    """The type of --metric-pattern. Raises `UserError` where it is none, or names no metric."""
    from zoerefine.lab.runs.metrics import parse_pattern  # it loads NumPy

    parse_pattern(text)
    return text


SHARED: dict[str, tuple[Sequence[str], dict[str, Any]]] = {
    # By the older spelling, too, older scripts call commands.
    "--config": (("--config", "--cfg_path"), {
        "metavar": "FILE", "type": existing_config, "required": True, "help": "a YAML config",
    }),
    "--host": (("--host",), {
        "default": "127.0.0.1", "metavar": "ADDRESS",
        "help": "address to serve on (default: 127.0.0.1, this machine only); the printed address "
        "holds a token, and without it nothing is shown",
    }),
    "--json": (("--json",), {
        "action": "store_true",
        "help": "print one JSON document, and nothing else, on standard output; docs/commands.md "
        "lists its keys",
    }),
    "--maximize": (("--maximize",), {
        "action": "store_true", "help": "higher values of the metric are better",
    }),
    "--metric-pattern": (("--metric-pattern",), {
        "action": "append", "default": [], "metavar": "REGEX", "type": pattern,
        "help": "finds metrics in the output of a script (log.txt), e.g. 'val_acc=(\\S+)'; may be "
        "repeated",
    }),
    "--notify": (("--notify",), {
        "default": "", "metavar": "COMMAND|URL",
        "help": "when all has ended or failed, send one message as JSON: to a command's standard "
        "input, or to an http(s) URL; '$VARIABLE' takes either from the environment, so that a "
        "URL's token stands in no list of processes",
    }),
    "--quiet": (("-q", "--quiet"), {
        "action": BeQuiet, "dest": argparse.SUPPRESS,
        "help": "print only results, warnings and errors: no progress, no messages",
    }),
    "--trust": (("--trust",), {
        "action": "store_true",
        "help": "accept a bundle from elsewhere that is a program (.ts, .pt2), and remember it: "
        "loading it runs it with your rights",
    }),
    "overrides": (("overrides",), {
        "nargs": "*", "metavar": "KEY VALUE", "help": "config keys to set, e.g. TRAIN.LR 3e-4",
    }),
}  # fmt: skip


def add_shared(options: "argparse._ActionsContainer", *names: str, **other: Any) -> None:
    """Add options of `SHARED`, with these `other` settings."""
    for name in names:
        words, settings = SHARED[name]
        options.add_argument(*words, **settings | other)


@contextmanager
def notifying(text: str, what: str) -> Iterator["Ending"]:
    """Send a notification when the block has ended, in whatever way.

    Args:
        text: of --notify; empty: none is sent.
        what: `launch`, `queue` or `search`.

    Raises `UserError` for a text that is neither a command nor a URL, before the block begins.
    """
    from zoerefine.lab.launch.notify import Ending, message_of, notify, parse_receiver

    receiver = parse_receiver(text) if text else None
    ending, started_s = Ending(), time.monotonic()
    try:
        yield ending
    except UserError as error:
        ending.code, ending.message = USER_ERROR, str(error)
        raise
    except KeyboardInterrupt as error:
        ending.code, ending.message = INTERRUPTED, str(error)
        raise
    except Exception as error:
        ending.code, ending.message = 1, f"{type(error).__name__}: {error}"
        raise
    finally:
        if receiver is not None:
            notify(receiver, message_of(what, ending, time.monotonic() - started_s))


def text_beside_json(as_json: bool) -> AbstractContextManager[object]:
    """While entered, what a person reads or a job prints goes to stderr if --json is given."""
    return redirect_stdout(sys.stderr if as_json else sys.stdout)


def print_json(document: Mapping[str, Any]) -> None:
    """Print a document as strict JSON in ASCII: whatever a path holds, any parser reads it."""
    print(json.dumps(mapped(document, or_null), indent=2, allow_nan=False, default=str))


def or_null(value: Any) -> Any:
    """None for NaN and infinity, which JSON has not."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_path(text: str) -> Path:
    """A path. Raises `UserError` for an empty one, as of a variable that a script has not set.

    `Path("")` would be the working folder.
    """
    if not text:
        raise UserError("a path is empty: is a variable of your script not set? . is this folder")
    return Path(text)


LARGEST = 2**63 - 1  # what programs and files can hold


def whole(least: int, most: int = LARGEST) -> Callable[[str], int]:
    """The type of a whole number within limits; argparse names the option of any other text."""

    def number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {text}")
        if int(text) > most:
            shown = "2^63 - 1" if most == LARGEST else most
            raise argparse.ArgumentTypeError(f"must be at most {shown}, got {text}")
        return int(text)

    return number


def days(text: str) -> float:
    """The type of --older-than. Raises `UserError` for a number that is none of days."""
    if not 0 <= float(text) < math.inf:
        raise UserError(f"--older-than {text} is not a number of days")
    return float(text)


def add_executor_options(add: "argparse._ActionsContainer") -> None:
    """Add --executor, and an option for each field of `Resources`."""
    from zoerefine.lab.launch.queue.executor import Resources  # most commands need no executor

    add.add_argument(
        "--executor",
        choices=list(EXECUTORS),
        default="local",
        help="where jobs run. local: on this machine (default); ray: on the Ray cluster whose "
        "head node RAY_ADDRESS names; slurm: as jobs of this machine's Slurm cluster",
    )
    for one in fields(Resources):
        add.add_argument(
            f"--{one.name}",
            type=partial(number_or_text, type(one.default)),
            metavar="VALUE" if isinstance(one.default, str) else "N",
            help=one.metadata["help"],
        )


def number_or_text(kind: type, text: str) -> Any:
    """An option's value. `Resources` refuses a text that is no number, and says what is allowed."""
    try:
        return kind(text)
    except ValueError:
        return text


def resources_of(
    args: argparse.Namespace, settings: Mapping[str, Any] | None = None
) -> "Resources":
    """The resources that the options ask for.

    Args:
        settings: the fields that a config sets. They are for clusters; options come before them.
    """
    from zoerefine.lab.launch.queue.executor import NO_RESOURCES, Resources

    given = {one.name: getattr(args, one.name) for one in fields(Resources)}
    asked = {name: value for name, value in given.items() if value is not None}
    if args.executor != "local":
        asked = {**(settings or {}), **asked}
    return Resources(**asked) if asked else NO_RESOURCES


def settings_of(cfg: "Config") -> dict[str, Any]:
    """The fields of `Resources` by the keys of CLUSTER in a config."""
    from zoerefine.lab.launch.queue.executor import Resources

    return {one.name: getattr(cfg.CLUSTER, one.metadata["key"]) for one in fields(Resources)}
