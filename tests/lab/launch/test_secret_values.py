"""Secrets are found by name and by value, in every form, and ordinary values are left alone."""

import base64
import json
import os
from unittest.mock import patch
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zoerefine.base.errors import UserError
from zoerefine.base.secrets import (
    HIDDEN,
    find_secret,
    hide_secrets,
    secret_names,
    without_secrets,
)

RANDOM = "qX7vT2mZ9pLk4RwB8sNd"
SECRETS = {
    "SSHPASS": "hunter-two",
    "GH_PAT": "four-score",
    "MY_JWT": "some-thing",
    "SESSION_COOKIE": "abc-def-ghi",
    "SLACK_WEBHOOK": "T000/B000/xyz",
    "WEBHOOK_URL": "https://chat.example/hook/17",
    "SENTRY_DSN": "https://abc@sentry.example/1",
    "REGISTRY_AUTH": "me:pw-93fe",
    "KAGGLE_KEY": "0123456789abcdef",
    "ORDINARY_NAME": RANDOM,
    "SOMETHING": "ghp_" + "a1B2" * 9,
    "ANOTHER": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc_DEF-123",
    "HOOK": "https://hooks.slack.com/services/T0/B0/abc",
}


@pytest.fixture
def only(monkeypatch):
    """Let the environment hold these variables alone."""

    def set_to(**variables):
        for name in list(os.environ):
            monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_to


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_found_by_its_name_or_by_its_value(only, name):
    only(**{name: SECRETS[name]})
    assert find_secret(f"x {SECRETS[name]} y".encode()) == name
    assert SECRETS[name] not in hide_secrets(f"x {SECRETS[name]} y")


ORDINARY = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/home/Me2/.local/bin",
    "COMMIT": "8f14e45fceea167a5a36dedd4bea2543a1b2c3d4",
    "DIGEST": "9F86D081884C7D659A2FEAA0C55AD015A3BF4F1B2B0B822CD15D6C15B0F00A08",
    "XDG_SESSION_ID": "c2",
    "TERM_SESSION_ID": "5F4DCC3B-5AA7-65D6-1D83-27DEB882CF99",
    "INVOCATION_ID": "0c7b1f6ad2f44f0b9a51d8c2a6a0b1f3",
    "HOSTNAME": "train-7d9f8b6c5d-x2x9z.cluster-17.local",
    "LS_COLORS": "rs=0:di=01;34:ln=01;36:mh=00:pi=40;33:so=01;35",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/1000/bus,guid=0c7b1f6ad2f44f0b9a51d8c2a6a0",
    "SSH_CONNECTION": "10.0.0.1 51234 10.0.0.2 22",
    "SSH_AUTH_SOCK": "/tmp/ssh-XXXXabCD12/agent.4711",
    "NIX_PATH": "/nix/store/4rjv5d3a0ygq7gb1vlq3l0fgnyhvi6kp-Python3-3.11.7",
    "PYTHONPATH": "/work/src:/work/lib/Python3",
    "TOKENIZERS_PARALLELISM": "false_alarm",
    "PWD": "/some/where",
    "API_KEY": "x",
    "SHOW_PASSWORD": "false",
    "GOOGLE_CREDENTIALS": "/etc/passwd",
    "HOME_DIRECTORY": "abcdefgh",
    "CUDA_VISIBLE_DEVICES": "GPU-8f14e45f-ceea-167a-5a36-dedd4bea2543",
    "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128,expandable_segments:True",
    "DATE": "2026-11-22T20:08:22+01:00",
    "TERM": "xterm-256color",
    "WEIGHTS": "ResNet50_Weights.IMAGENET1K_V2",
    "PGPASSFILE": "/etc/passwd",
    "POSTGRES_PASSWORD": "postgres",
    "GIT_CONFIG_VALUE_0": "Jane Smith",
    "GIT_CONFIG_KEY_0": "user.name",
    "MODULES": "numpy/1.26-foss-2023a torch/2.1-CUDA-12.1",
    "GIT_AUTHOR_NAME": "Jane Smith",
}


def test_ordinary_values_are_no_secrets(only):
    only(**ORDINARY)
    assert secret_names() == {}
    for value in ORDINARY.values():
        assert hide_secrets(f"about {value} here") == f"about {value} here"
        assert find_secret(value.encode()) == ""


FORMS = {
    "text": lambda value: value.encode(),
    "JSON": lambda value: json.dumps({"a": value}).encode(),
    "JSON with Unicode": lambda value: json.dumps({"a": value}, ensure_ascii=False).encode(),
    "base64": lambda value: base64.b64encode(value.encode()),
    "base64, one byte later": lambda value: base64.b64encode(b"u" + value.encode() + b"v"),
    "base64, two bytes later": lambda value: base64.b64encode(b"u:" + value.encode() + b"vw"),
    "base64 of URLs": lambda value: base64.urlsafe_b64encode(b"user:" + value.encode()),
    "binary": lambda value: b"\x00\xff" + value.encode() + b"\x00\xfe",
    "UTF-16": lambda value: f"a{value}b".encode("utf-16"),
}
# Found, but too long or too unlikely to be replaced in a text.
FORMS_IN_FILES = {
    "UTF-16, big-endian": lambda value: f"a{value}b".encode("utf-16-be"),
    "hex digits": lambda value: b"a" + value.encode().hex().encode(),
    "hex digits, capitals": lambda value: value.encode().hex().upper().encode(),
    "base64 in lines": lambda value: in_lines(base64.b64encode(b"me:" + value.encode())),
    "a URL, every character": lambda value: "".join(f"%{n:02x}" for n in value.encode()).encode(),
}


def in_lines(data):
    return b"\n ".join(data[start : start + 6] for start in range(0, len(data), 6))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", ['p"ss\\wörd\t/+~9c1f', "k-4711-secret-word"])
def test_a_secret_is_found_in_every_form(only, form, value):
    only(MY_TOKEN=value)
    assert find_secret(FORMS[form](value)) == "MY_TOKEN"
    if form != "UTF-16" and form != "binary":
        assert HIDDEN in hide_secrets(FORMS[form](value).decode())


@pytest.mark.parametrize("form", FORMS_IN_FILES)
def test_a_secret_is_found_in_other_forms_of_files(only, form):
    only(MY_TOKEN="k-4711-secret-word")
    assert find_secret(FORMS_IN_FILES[form]("k-4711-secret-word")) == "MY_TOKEN"


CONFIGS = {
    "escapes.yaml": 'A: {B: ["\\x6b-4711\\u002dsecret"]}',
    "folded.yaml": 'A: "k-4711-\\\n  secret"',
    "key.yaml": '"\\x6b-4711-secret": 1',
    "escapes.json": '{"A": [{"B": "\\u006b-4711-secret"}]}',
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_secret_is_found_behind_the_escapes_of_a_config(repository, plan, name, only, tmp_path):
    only(MY_TOKEN="k-4711-secret", PATH=os.environ["PATH"])
    (tmp_path / name).write_text(CONFIGS[name])
    with pytest.raises(UserError, match="secret of MY_TOKEN"):
        plan(repository.first, config=tmp_path / name)


def test_a_runs_name_is_no_secret(launch, tmp_path):
    for words in (("--name", "k-4711-secret"), ("RUN.NAME", "k-4711-secret")):
        done = launch(*words, env={"MY_TOKEN": "k-4711-secret"}, code=2)
        assert done.stderr.count("\n") == 1
        assert "secret of MY_TOKEN" in done.stderr and "4711" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_the_secrets_inside_a_value_are_secrets_too(only):
    login = base64.b64encode(b"me:registry-pw").decode()
    only(
        DOCKER_AUTH_CONFIG=json.dumps({"auths": {"ghcr.io": {"auth": login}}}),
        DATABASE="postgresql://me:db-pw-93fe@host/x",
        GIT_CONFIG_COUNT="1",
        GIT_CONFIG_KEY_0="http.extraHeader",
        GIT_CONFIG_VALUE_0=f"Authorization: Bearer {RANDOM}",
        MY_COOKIE=f"id={RANDOM[::-1]}; path=/",
    )
    for secret in (login, "registry-pw", "db-pw-93fe", RANDOM, RANDOM[::-1]):
        assert find_secret(secret.encode()), secret
    assert find_secret(b"ghcr.io and postgresql and Authorization: Bearer") == ""


@pytest.mark.parametrize("content", ["text", "binary"])
def test_uncommitted_files_with_a_secret_are_refused(repository, plan, monkeypatch, content):
    monkeypatch.setenv("MY_TOKEN", "k-4711-secret")
    name = repository.folder / "new.bin"
    noise = b"\0" + os.urandom(3000) if content == "binary" else b""
    name.write_bytes(noise + b"k-4711-secret" + noise)
    with pytest.raises(UserError, match="secret of MY_TOKEN"):
        plan("HEAD", allow_dirty=True)


def test_a_binary_file_whose_committed_content_has_a_secret_is_refused(
    repository, plan, monkeypatch
):
    """A patch of a binary file holds its former content, too."""
    noise = os.urandom(3000)
    (repository.folder / "a.bin").write_bytes(b"\0" + noise + b"k-4711-secret" + noise)
    repository.commit("a secret")
    monkeypatch.setenv("MY_TOKEN", "k-4711-secret")
    (repository.folder / "a.bin").write_bytes(b"\0")
    with pytest.raises(UserError, match="secret of MY_TOKEN"):
        plan("HEAD", allow_dirty=True)


@pytest.mark.parametrize(
    ("password", "is_refused"),
    [("pw-93fe", True), ("${PGPASSWORD}", False), ("***", False), ("<password>", False)],
)
def test_a_config_with_the_password_of_a_url_is_refused(
    repository, config, plan, password, is_refused
):
    config.write_text(f"DATABASE: {{URL: 'postgresql://u:{password}@h/db'}}\n")
    if is_refused:
        with pytest.raises(UserError, match="a URL with a password"):
            plan(repository.first)
    else:
        assert plan(repository.first)


def test_our_own_training_gets_no_secret_in_its_words(repository, plan, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "k-4711-secret")
    (repository.folder / "zoerefine").mkdir()
    (repository.folder / "zoerefine" / "train.py").touch()
    commit = repository.commit("with a training")
    for value in ("k-4711-secret", "postgresql://u:pw-93fe@h/db"):
        with pytest.raises(UserError, match=r"RUN\.NAME contains the secret"):
            plan(commit, "zoerefine.train", overrides=("RUN.NAME", value))


NAMES = ["WANDB_API_KEY", "DB_PASSWORD", "githubToken", "AWS_SECRET_ACCESS_KEY", "SSH_PASSPHRASE"]
ANY_SECRET = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=6).filter(
    lambda text: text.lower() not in ("false", "disabled", "enabled", "default")
)


@example("WANDB_API_KEY", "~nobody-of-this-name", "", "")  # not a user's folder
@given(st.sampled_from(NAMES), ANY_SECRET, st.text(), st.text())
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
