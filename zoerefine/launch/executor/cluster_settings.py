"""What the configs of our own training ask a cluster for: the keys of CLUSTER."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from zoerefine.config.schema import KEYS
from zoerefine.config.value_types import Text, WrongValue
from zoerefine.errors import UserError
from zoerefine.launch.executor import Resources
from zoerefine.launch.job_config import read_setting
from zoerefine.yaml_text import Document

KEY_OF = {one.name: f"CLUSTER.{one.metadata['key']}" for one in fields(Resources)}


def cluster_settings(document: Document, overrides: Sequence[str]) -> dict[str, Any]:
    """The fields of `Resources` that a config sets. Raises `UserError` for a wrong value."""
    found = {}
    for name, key in KEY_OF.items():
        setting, kind = read_setting(document, overrides, key), KEYS[key].type
        if setting.value is not None:
            value = setting.as_text() if isinstance(kind, Text) else setting.value
            try:
                found[name] = kind.read(value, key)
            except WrongValue as error:
                raise UserError(str(error)) from None
    return found


def agreed_settings(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The settings of all jobs of a queue. Raises `UserError` where they differ."""
    first = dict(found[0]) if found else {}
    for other in found[1:]:
        for name, key in KEY_OF.items():
            if first.get(name) != other.get(name):
                raise UserError(
                    f"the configs of this queue differ in {key}: launch them apart, or set it "
                    "for all by a KEY VALUE word"
                )
    return first
