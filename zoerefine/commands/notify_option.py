"""The option --notify, shared by `run` and `search`."""

import argparse


def add_notify_option(options: "argparse._ActionsContainer") -> None:
    """Add --notify."""
    options.add_argument(
        "--notify", default="", metavar="COMMAND|URL",
        help="when all has ended or failed, send one message as JSON: to a command's standard "
        "input, or to an http(s) URL; '$VARIABLE' takes either from the environment, so that a "
        "URL's token stands in no list of processes",
    )  # fmt: skip
