"""Words that depend on a number."""


def counted(count: int, noun: str) -> str:
    """`1 run`, `2 runs`, `1,000 runs`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
