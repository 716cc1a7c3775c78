"""Writes plain data as YAML that reads back to the same values, here and by YAML 1.1."""

from typing import Any

import yaml

from zoerefine.base.yaml.equal_values import same_data
from zoerefine.base.yaml.read import load_yaml, plain_value


class _Dumper(yaml.SafeDumper):
    """PyYAML's safe dumper, which quotes what YAML 1.1 would misread; here 1.2's numbers too."""

    def ignore_aliases(self, data: Any) -> bool:
        return True  # a list that occurs twice is written twice


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if plain_value(text) == text else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _write_text)


def dump_yaml(tree: Any) -> str:
    """Plain data as YAML that reads back to the same values. Raises `ValueError` if it cannot."""
    return _dumped(tree)


def dump_value(value: Any) -> str:
    """A value as YAML in one line. Raises `ValueError` as `dump_yaml` does."""
    text = _dumped(value, default_flow_style=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")


def _dumped(tree: Any, **options: Any) -> str:
    # YAML does not escape every line break that Unicode knows: where it matters, escape all.
    for unicode in (True, False):
        text: str = yaml.dump(
            tree, Dumper=_Dumper, sort_keys=False, allow_unicode=unicode, **options
        )
        if same_data(load_yaml(text), tree):
            return text
    raise ValueError("it holds a value that YAML cannot keep")
