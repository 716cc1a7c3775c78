"""Secrets are replaced in everything that may be written to a file."""

import os
from unittest.mock import patch
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zoerefine.base.secrets import HIDDEN, find_secret, hide_secrets, without_secrets

NAMES = ["WANDB_API_KEY", "DB_PASSWORD", "githubToken", "AWS_SECRET_ACCESS_KEY", "SSH_PASSPHRASE"]
SECRETS = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=6).filter(
    lambda text: text.lower() not in ("false", "disabled", "enabled", "default")
)


@example("WANDB_API_KEY", "~nobody-of-this-name", "", "")  # not a user's folder
@given(st.sampled_from(NAMES), SECRETS, st.text(), st.text())
def test_no_secret_of_the_environment_remains_in_a_text(name, secret, before, after):
    with patch.dict(os.environ, {name: secret}):
        assert secret not in hide_secrets(f"{before}{secret}{after}").replace(HIDDEN, "\0")
        assert quote(secret, safe="") not in hide_secrets(f"https://h/{quote(secret, safe='')}")
        hidden = without_secrets({"a": [secret, {secret: 1}], "b": (secret,)})
        assert secret not in str(hidden).replace(HIDDEN, "\0") or secret in "{'a': [, ]}"
        assert find_secret(f"x{secret}y".encode()) == name


@given(st.text("abc/:.=&", max_size=8), st.text("abcDEF019%._~-", min_size=1))
def test_credentials_in_urls_are_hidden(rest, password):
    shown = hide_secrets(f"fetching https://me:{password}@host/{rest}")
    assert shown == f"fetching https://{HIDDEN}@host/{rest}"


@pytest.mark.parametrize("name", ["$DB_PASSWORD", "${DB_PASSWORD}"])
def test_the_name_of_a_passwords_variable_remains(name):
    assert hide_secrets(f"postgresql://me:{name}@h/d") == f"postgresql://me:{name}@h/d"
    assert hide_secrets(f"postgresql://me:{name}-x@h/d") == f"postgresql://{HIDDEN}@h/d"


def test_a_secret_of_several_lines_is_hidden_line_by_line():
    key = "-----BEGIN KEY-----\nabcdefgh123\n-----END KEY-----"
    with patch.dict(os.environ, {"DEPLOY_PRIVATE_KEY": key}):
        assert "abcdefgh123" not in hide_secrets("the job printed abcdefgh123 alone")
