"""A search space in words: `--search KEY=LOW..HIGH [log | step S]` and `KEY=[A, B]`."""

import re
from collections.abc import Sequence
from typing import Any

from zoerefine.base.config.value_types import shown
from zoerefine.base.errors import UserError
from zoerefine.base.yaml.keys import nested
from zoerefine.base.yaml.read import Document, YamlError, parse_yaml, plain_value
from zoerefine.lab.search.space.script_section import SpaceSource

NUMBER = r"[-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
LEADING_ZEROS = re.compile(r"[\[,]\s*(0\d+)\s*(?=[,\]])")
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
RANGE = re.compile(rf"({NUMBER})\s*\.\.(?!\.)\s*({NUMBER})(?:\s+(log)|\s+step\s+({NUMBER}))?")


def space_of_words(words: Sequence[str]) -> list[SpaceSource]:
    """The spaces of `KEY=LOW..HIGH [log | step S]` and `KEY=[A, B]`. Raises `UserError`."""
    keys = [word.partition("=")[0].strip() for word in words]
    for key in keys:
        if keys.count(key) > 1:
            raise UserError(f"--search: {key} is given twice: keep one")
        if inner := next((one for one in keys if one.startswith(f"{key}.")), ""):
            raise UserError(
                f"--search: {key} and {inner} cannot both be searched, since one is inside the "
                f"other; for a group of Hydra write --search 'choice=[A, B]' and, after --, "
                f"'{key}={{choice}}'"
            )
    return [space_of_word(word) for word in words]


def space_of_word(word: str) -> SpaceSource:
    """The space of one option --search."""
    key, equals, text = (part.strip() for part in word.partition("="))
    found = RANGE.fullmatch(text)
    if found:
        low, high, log, step = found.groups()
        value: Any = {"low": plain_value(low), "high": plain_value(high)}
        value |= {"log": True} if log else {"step": plain_value(step)} if step else {}
        if isinstance(value.get("step"), float):  # 0..1 step 0.1 is of fractions, as 0.0..1.0 is
            value = {name: float(number) for name, number in value.items()}
    else:
        try:
            value = parse_yaml(text).tree
        except YamlError:
            value = None
        if zeros := LEADING_ZEROS.search(QUOTED.sub("", text)):  # subjects, folds
            raise UserError(
                f"--search {shown(word)}: {zeros[1]} would be the number {int(zeros[1])}; write "
                f'"{zeros[1]}" for the word'
            )
    if not (key and equals and isinstance(value, list | dict)):
        raise UserError(
            f"--search {shown(word)} is neither KEY=LOW..HIGH, KEY=LOW..HIGH log, KEY=LOW..HIGH "
            "step S nor KEY=[A, B]"
        )
    tree = nested(key.split("."), value)
    return SpaceSource(tree, Document(tree, {}, "--search"))
