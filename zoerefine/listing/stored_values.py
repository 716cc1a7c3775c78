"""Values by name of many runs, stored as values alone: most runs have the same names."""

from collections.abc import Iterable, Iterator, Mapping


class StoredMetrics(Mapping[str, float]):
    """The metrics of a run by name. A value is parsed when it is asked for."""

    def __init__(self, places: Mapping[str, int], values: str) -> None:
        """Values with spaces between them, and the place of each name among them."""
        self._places, self._values = places, values

    def __getitem__(self, name: str) -> float:
        place = self._places[name]
        return float(self._values.split(" ", place + 1)[place])

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class NameTable:
    """The different lists of names, each with a number, which is stored as text."""

    def __init__(self, lists: Iterable[Iterable[str]] = ()) -> None:
        self.places: dict[str, dict[str, int]] = {}  # by number: the place of each name
        self._numbers: dict[tuple[str, ...], str] = {}
        for names in lists:
            self.number(names)

    def number(self, names: Iterable[str]) -> str:
        """The number of a list of names; a new one for a list that is new."""
        names = tuple(names)
        if names not in self._numbers:
            number = self._numbers[names] = str(len(self._numbers))
            self.places[number] = {name: place for place, name in enumerate(names)}
        return self._numbers[names]

    @property
    def lists(self) -> list[list[str]]:
        """What a new table is made from."""
        return [list(places) for places in self.places.values()]
