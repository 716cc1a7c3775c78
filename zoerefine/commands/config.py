"""zoerefine config: every setting with its value, where it came from, and what is allowed."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zoerefine.base.config import loading, paths, to_dict
from zoerefine.base.config.schema import GROUPS, KEYS, SEARCH, Key
from zoerefine.base.config.value_types import OneOf
from zoerefine.base.config_roles import role_of
from zoerefine.base.errors import UserError
from zoerefine.base.yaml.keys import value_at
from zoerefine.base.yaml.write import dump_value, dump_yaml
from zoerefine.commands.options import Parser, add_shared

WIDTH = 100
SEARCH_MEANING = "Values to try: [a, b] is a choice, {low, high, log, step} a range."
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
        help="print an example config instead, to start yours from: "
        + ", ".join(paths.example_names()),
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
        print(paths.example_file(args.example).read_text(encoding="utf-8"), end="")
        return 0
    names, pairs = split_words(args.words)
    resolved = loading.resolve_config(args.config, pairs)
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
            raise UserError(loading.unknown_key(word))
    return names, pairs


def as_yaml(resolved: loading.Resolved, names: Sequence[str] = ()) -> str:
    """The tree, or some groups of it, as YAML that loads again, with comments."""
    groups = [one for one in GROUPS if not names or one in names]
    lines = [] if names else list(_key_lines(resolved, KEYS["SEED"], ""))
    for group in groups:
        lines += ["", f"{group}:  # {GROUPS[group]}"]
        for key in KEYS.values():
            if key.name.startswith(f"{group}."):
                lines += _key_lines(resolved, key, "  ")
    if not names or SEARCH in names:
        lines += ["", *_search_lines(resolved)]
    return "\n".join(lines).strip() + "\n"


def _key_lines(resolved: loading.Resolved, key: Key, indent: str) -> Iterator[str]:
    value = _plain(value_at(resolved.cfg, key.name))
    about = f"{key.meaning}{_unit(key)}. {_capital(key.type.allowed)}."
    if value != key.default:
        about += f" Default {dump_value(key.default)}."
    lines = textwrap.wrap(_capital(about), WIDTH - len(indent) - 2, break_on_hyphens=False)
    yield from (f"{indent}# {line}" for line in lines)
    origin = f"  # {resolved.origins[key.name]}" if key.name in resolved.origins else ""
    yield f"{indent}{key.name.rpartition('.')[2]}: {dump_value(value)}{origin}"


def _search_lines(resolved: loading.Resolved) -> Iterator[str]:
    yield f"# {SEARCH_MEANING}"
    origin = f"  # {resolved.origins[SEARCH]}" if SEARCH in resolved.origins else ""
    tree = to_dict(resolved.cfg[SEARCH])
    if not tree:
        yield f"{SEARCH}: {{}}{origin}"
        return
    yield f"{SEARCH}:{origin}"
    yield textwrap.indent(dump_yaml(tree), "  ").rstrip()


def explain_key(resolved: loading.Resolved, key: Key) -> str:
    """One key in detail."""
    value = _plain(value_at(resolved.cfg, key.name))
    rows = {
        "meaning": f"{key.meaning}{_unit(key)}",
        "from": resolved.origins.get(key.name, "the default"),
        "default": dump_value(key.default),
        "allowed": "\n".join(_allowed(key)),
        "decides": role_of(key.name).value,
    }
    lines = [f"{key.name}: {dump_value(value)}"]
    for name, text in rows.items():
        first, *more = text.splitlines()
        lines += [f"  {name:<8} {first}", *(f"  {'':<8} {line}" for line in more)]
    return "\n".join(lines) + "\n"


def _allowed(key: Key) -> Iterator[str]:
    if not isinstance(key.type, OneOf):
        yield key.type.allowed
        return
    width = max(len(name or "(empty)") for name in key.type.names)
    for name, meaning in key.type.meanings.items():
        yield f"{name or '(empty)':<{width}}  {meaning}".rstrip()
    if key.type.outside:
        yield "package.module:Class"


def as_markdown() -> str:
    """The table of all keys, a section a group."""
    top = [key for key in KEYS.values() if "." not in key.name]
    parts = [_table(top)]
    for group, meaning in GROUPS.items():
        keys = [key for key in KEYS.values() if key.name.startswith(f"{group}.")]
        parts += [f"### {group}\n\n{meaning}\n", _table(keys)]
    return "\n".join(parts)


def _table(keys: Sequence[Key]) -> str:
    lines = ["| key | default | allowed | meaning |", "|---|---|---|---|"]
    for key in keys:
        cells = [f"`{key.name}`", f"`{dump_value(key.default)}`", _allowed_cell(key)]
        lines.append(" | ".join(["", *cells, f"{key.meaning}{_unit(key)}", ""]).strip())
    return "\n".join(lines) + "\n"


def _allowed_cell(key: Key) -> str:
    if not isinstance(key.type, OneOf):
        return key.type.allowed.replace("|", "\\|")
    names = [
        f"{f'`{name}`' if name else 'empty'}{f' ({meaning})' if meaning else ''}"
        for name, meaning in key.type.meanings.items()
    ]
    return ", ".join([*names, *(["`package.module:Class`"] if key.type.outside else [])])


def _unit(key: Key) -> str:
    return f" (unit: {key.unit})" if key.unit else ""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
