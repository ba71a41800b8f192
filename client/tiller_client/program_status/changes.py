"""Brings the records of one terminal up to date; pure."""

from collections.abc import Mapping

from tiller_client.program_status.report import ROOT, Record, clear, report


class StatusChanges:
    """Makes the escapes for a terminal from the records that a program wants there now."""

    def __init__(self, *, is_wanted: bool) -> None:
        """Without `is_wanted`, there are no escapes."""
        self._is_wanted = is_wanted
        self._told: dict[str, str] = {}
        """The last report of each record."""

    def update(self, records: Mapping[str, Record]) -> str:
        """The escapes for the records that have changed since the last call, or are gone."""
        if not self._is_wanted:
            return ""
        gone = [one for one in self._told if one not in records]
        now = {name: report(record, name) for name, record in records.items()}
        new = [text for name, text in now.items() if self._told.get(name) != text]
        self._told = now
        return "".join([*map(clear, gone), *new])

    def end(self, *, keeps_result: bool = False) -> str:
        """The escapes for the program's end: all records go, or the program's own stays."""
        told, self._told = self._told, {}
        if not keeps_result:
            return clear() if told else ""
        return "".join(clear(name) for name in told if name != ROOT)
