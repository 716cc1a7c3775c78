"""zoerefine config: every setting with its value, where it came from, and what is allowed."""

from collections.abc import Sequence

from zoerefine.base.config.explain import as_markdown, as_yaml, explain_key
from zoerefine.base.config.loading import example_file, example_names, resolve_config, unknown_key
from zoerefine.base.config.schema import GROUPS, KEYS, SEARCH
from zoerefine.base.errors import UserError
from zoerefine.commands.options import Parser, add_shared

EPILOG = """\
examples:
  zoerefine config --config configs/demo.yaml         # the whole tree, as YAML with comments
  zoerefine config --example demo > my.yaml           # a file to start yours from
  zoerefine config TRAIN.SCHEDULE                     # one key in detail
  zoerefine config --config configs/demo.yaml TRAIN   # one group
  zoerefine config TRAIN.LR 3e-4 TRAIN.LR             # a value checked, then explained
"""


def main(argv: Sequence[str]) -> int:
    """Print the tree, groups or keys."""
    parser = Parser(
        "zoerefine config",
        "Print the settings that a config and KEY VALUE pairs result in, with meaning, "
        "unit, default, allowed values, and where each value is set. Nothing is run or written.",
        EPILOG,
    )
    add_shared(parser, "--config", required=False, help="a YAML config (default: none)")
    parser.add_argument(
        "--example", metavar="NAME",
        help="print an example config instead, to start yours from: " + ", ".join(example_names()),
    )  # fmt: skip
    parser.add_argument(
        "--markdown", action="store_true", help="print the table of docs/configuration.md instead"
    )
    parser.add_argument(
        "words", nargs="*", metavar="KEY [VALUE]",
        help="a key or group to explain; a key with a value sets it, as in the other commands",
    )  # fmt: skip
    args = parser.parse_intermixed_args(argv)
    if args.markdown:
        print(as_markdown(), end="")
        return 0
    if args.example:
        print(example_file(args.example).read_text(encoding="utf-8"), end="")
        return 0
    names, pairs = split_words(args.words)
    resolved = resolve_config(args.config, pairs)
    groups = [name for name in names if name not in KEYS]
    parts = [as_yaml(resolved, groups)] if groups or not names else []
    parts += [explain_key(resolved, KEYS[name]) for name in names if name in KEYS]
    print("\n".join(parts), end="")
    return 0


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The names to explain, and the KEY VALUE pairs: a key before a word that names nothing."""
    known = {*KEYS, *GROUPS, SEARCH}
    names: list[str] = []
    pairs: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if left and left[0] not in known:
            pairs += [word, left.pop(0)]
        elif word in known:
            names.append(word)
        else:
            raise UserError(unknown_key(word))
    return names, pairs
