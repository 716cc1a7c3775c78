"""Which of the user's environment variables jobs get, and which the builds of environments get."""

import os

from zoerefine.launch.node_place import NODE
from zoerefine.launch.repository_address import LOGIN_VARIABLES

# Variables that would change what the job runs, and those that an outer launch has set.
REMOVED_VARIABLES = {
    *("PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONPLATLIBDIR", "PYTHONOPTIMIZE"),
    *("PYTHONWARNINGS", "PYTHONDEBUG", "PYTHONSAFEPATH", "PYTHONNOUSERSITE", "__PYVENV_LAUNCHER__"),
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", *LOGIN_VARIABLES, NODE),
}
# pip counts the packages on PYTHONPATH as installed.
REMOVED_FROM_BUILDS = {*REMOVED_VARIABLES, "PYTHONPATH", "VIRTUAL_ENV"}
# An installer's settings that say from where and how packages come. Every other one could decide
# what is installed or where, so that later launches would find an environment made otherwise.
INSTALLERS = ("PIP_", "UV_")
INSTALLER_SETTINGS = {
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_CONFIG_FILE"),
    *("PIP_TRUSTED_HOST", "PIP_CERT", "PIP_CLIENT_CERT", "PIP_PROXY", "PIP_KEYRING_PROVIDER"),
    *("PIP_TIMEOUT", "PIP_DEFAULT_TIMEOUT", "PIP_RETRIES", "PIP_NO_INPUT", "PIP_USE_FEATURE"),
    *("PIP_CACHE_DIR", "PIP_NO_CACHE_DIR", "PIP_REQUIRE_HASHES"),
    *("UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_OFFLINE", "UV_CONFIG_FILE"),
    *("UV_INSECURE_HOST", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_KEYRING_PROVIDER"),
    *("UV_CREDENTIALS_DIR", "UV_GITHUB_TOKEN", "UV_REQUEST_TIMEOUT", "UV_LOCK_TIMEOUT"),
    *("UV_CACHE_DIR", "UV_NO_CACHE", "UV_LINK_MODE", "UV_REQUIRE_HASHES"),
}
# UV_INDEX_URL, UV_INDEX_<NAME>_PASSWORD, UV_HTTP_TIMEOUT, UV_CONCURRENT_DOWNLOADS, ...
INSTALLER_FAMILIES = ("UV_INDEX", "UV_HTTP_", "UV_CONCURRENT_")


def job_variables() -> dict[str, str]:
    """The user's variables, without those that would change what a job runs."""
    return {name: value for name, value in os.environ.items() if name not in REMOVED_VARIABLES}


def build_variables() -> dict[str, str]:
    """The user's variables, without those that would decide what an environment has."""
    return {name: value for name, value in os.environ.items() if reaches_builds(name)}


def reaches_builds(name: str) -> bool:
    """Whether the build of an environment gets a variable of the user's."""
    if name.startswith(INSTALLERS):
        return name in INSTALLER_SETTINGS or name.startswith(INSTALLER_FAMILIES)
    return name not in REMOVED_FROM_BUILDS
