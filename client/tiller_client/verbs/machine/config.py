"""`config path|show|check`: the user's configuration file; the daemon interprets it."""

from argparse import Namespace
from pathlib import Path

import msgspec

from tiller_client.connecting.runtime import my_places
from tiller_client.console import flush, print_json, say
from tiller_client.errors import TillerError
from tiller_client.rendering.text import one_line, sanitized
from tiller_client.verbs.machine.program import ask_program
from tiller_protocol.places import CONFIG_FILE


class ConfigurationFile(msgspec.Struct, omit_defaults=True):
    """The file as `--json` prints it; `text` is its content."""

    path: str
    exists: bool
    text: str = ""


def run(arguments: Namespace) -> int:
    """Run one action on the configuration."""
    path = my_places().config / CONFIG_FILE
    match arguments.action:
        case "path":
            if arguments.json:
                print_json(ConfigurationFile(str(path), path.exists()))
            else:
                say(str(path))
            return 0
        case "show":
            return _show(path, json=arguments.json)
        case _:
            return _check(json=arguments.json)


def require_regular(path: Path) -> None:
    """Raise `TillerError` if the path exists but is not a file, which might block the reader."""
    if path.exists() and not path.is_file():
        raise TillerError(f"{path} is not a regular file; move it away")


def _show(path: Path, *, json: bool) -> int:
    try:
        require_regular(path)
        text, exists = path.read_text("utf-8-sig", errors="replace"), True
    except (FileNotFoundError, NotADirectoryError):
        text, exists = "", False
    except OSError as error:
        raise TillerError(f"{path} can't be read: {error.strerror}") from None
    if json:
        print_json(ConfigurationFile(str(path), exists, text))
    elif exists:
        say(f"# {one_line(str(path))}\n{sanitized(text).rstrip()}")
    else:
        shown = one_line(str(path))
        say(f"# {shown} does not exist: nothing is configured yet, which is fine")
    return 0


def _check(*, json: bool) -> int:
    checked = ask_program("--check-config")
    if json:
        print_json(checked)
    elif checked.good:
        say(checked.message)
    else:
        flush()
        raise TillerError(checked.message)
    return 0 if checked.good else 1
