"""How `--help` is laid out: descriptions are wrapped, examples keep their lines."""

import argparse


class HelpFormat(argparse.HelpFormatter):
    """Wraps texts of one line to the terminal, and keeps texts of several lines as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text.strip():
            return "".join(indent + line for line in text.splitlines(keepends=True))
        return super()._fill_text(text, width, indent)
