"""The text that a user types on a board: a message, a reason or a filter; pure."""

from dataclasses import dataclass


@dataclass
class Line:
    """A text and the cursor's place in it, in characters. Only pasted texts have several lines."""

    text: str = ""
    at: int = 0

    @classmethod
    def of(cls, text: str) -> "Line":
        """A text with the cursor at its end."""
        return cls(text, len(text))

    def insert(self, text: str) -> None:
        """Insert a text at the cursor."""
        self.text = self.text[: self.at] + text + self.text[self.at :]
        self.at += len(text)

    def press(self, key: str) -> bool:
        """Edit the text by a key; return whether the key edits."""
        before, after = self.text[: self.at], self.text[self.at :]
        match key:
            case "left" | "c-b":
                self.at = max(0, self.at - 1)
            case "right" | "c-f":
                self.at = min(len(self.text), self.at + 1)
            case "home" | "c-a":
                self.at = before.rfind("\n") + 1
            case "end" | "c-e":
                self.at += (after + "\n").index("\n")
            case "backspace":
                self._replace(before[:-1], after)
            case "delete":
                self._replace(before, after[1:])
            case "c-u":
                self._replace("", after)
            case "c-k":
                self._replace(before, "")
            case "c-w":
                kept = before.rstrip()
                self._replace(kept[: kept.rfind(" ") + 1], after)
            case _:
                return False
        return True

    def _replace(self, before: str, after: str) -> None:
        self.text, self.at = before + after, len(before)
