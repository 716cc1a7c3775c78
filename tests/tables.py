"""Tables that commands write."""

import csv


def csv_rows(path):
    """The rows of a CSV file, by column."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
