"""What is known of the models in use, and how more gets known: beside turns, never before one.

Whoever asks gets what is known now. What is not known is looked up by the task `run`: in the
provider's own listing, and in a package of prices. Both are kept in a file, so that they are known
at the first turn after a restart. What the user configured is over all of it, but not here.
"""

import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import structlog
import trio
from msgspec import Struct, structs

from tiller_daemon.models.base import ModelError
from tiller_daemon.models.catalog.facts import Facts, ModelRef
from tiller_daemon.models.catalog.listing import Listing
from tiller_daemon.private import open_private

log = structlog.get_logger()

PACKAGE = "genai_prices"
PACKAGE_COMMAND = (sys.executable, "-P", "-m", "tiller_daemon.models.catalog.price_list")
PACKAGE_TIMEOUT_S = 30.0
"""How long the package may take; it needs half a second on an idle machine."""

LISTING_TIMEOUT_S = 3.0
"""How long a provider may take to list its models; nobody waits for it but `tiller models`."""

LISTING_MAX_AGE_S = 600.0
LISTING_MAX_AGE_UNKNOWN_S = 60.0
"""How old a listing may be when a model of it is used: local servers are restarted with others, and
some tell a window only once the model is loaded."""

ENTRIES_MAX = 500
"""Models whose facts are kept in the file; more than anybody uses."""

PASSED_VARIABLES = ("PATH", "PYTHONPATH", "HOME", "LANG")


class CatalogFile(Struct):
    """The file. `package` says from which state of the package `packaged` was read."""

    package: str = ""
    packaged: dict[str, Facts] = {}
    listed: dict[str, Facts] = {}


FetchListing = Callable[[str], Awaitable[Listing]]
"""Asks the provider of a name; raises `ModelError`."""


class Catalog:
    """What is known of models. `file` is where it is kept, in a directory of the user's own."""

    def __init__(self, file: Path | None, ask: FetchListing, environ: Mapping[str, str]) -> None:
        self._file = file
        self._ask = ask
        self._variables = {name: environ[name] for name in PASSED_VARIABLES if name in environ}
        self._facts_file = _read(file)
        self._listed_at: dict[str, float] = {}
        self._pending: dict[str, set[ModelRef]] = {}
        self._wakeup = trio.Event()

    def facts(self, provider: str, ref: ModelRef) -> Facts:
        """What is known now of a model of the provider; what is missing is looked up meanwhile."""
        known = self._known(ref)
        if self._is_unasked(ref) or self._is_due(provider, ref, known):
            self._pending.setdefault(provider, set()).add(ref)
            self._wakeup.set()
        return known

    async def listing(self, provider: str, base_url: str) -> Listing:
        """Ask a provider for its models now; raises `ModelError`, also when it takes too long."""
        self._listed_at[provider] = trio.current_time()
        with trio.move_on_after(LISTING_TIMEOUT_S):
            listing = await self._ask(provider)
            for name, facts in listing.items():
                if facts != Facts():
                    _store(self._facts_file.listed, _key(ModelRef(base_url, name)), facts)
            return listing
        raise ModelError("timeout", f"Provider {provider} did not list its models in time.")

    async def run(self) -> None:
        """Look up what was asked for and not known, until cancelled. Failures leave it unknown."""
        while True:
            await self._wakeup.wait()
            self._wakeup = trio.Event()
            wanted, self._pending = self._pending, {}
            before = structs.replace(
                self._facts_file,
                packaged=dict(self._facts_file.packaged),
                listed=dict(self._facts_file.listed),
            )
            await self._ask_package({one for ref in wanted.values() for one in ref})
            async with trio.open_nursery() as nursery:
                for provider, ref in wanted.items():
                    if any(self._is_due(provider, one, self._known(one)) for one in ref):
                        nursery.start_soon(self._list, provider, next(iter(ref)).base_url)
            if self._file and self._facts_file != before:
                data = msgspec.json.encode(self._facts_file)
                await trio.to_thread.run_sync(_write, self._file, data)

    def _known(self, ref: ModelRef) -> Facts:
        key = _key(ref)
        return self._facts_file.listed.get(key, Facts()).over(
            self._facts_file.packaged.get(key, Facts())
        )

    def _is_unasked(self, ref: ModelRef) -> bool:
        """Whether the package may know it, and was not asked."""
        return is_public(ref.base_url) and _key(ref) not in self._facts_file.packaged

    def _is_due(self, provider: str, ref: ModelRef, known: Facts) -> bool:
        """Whether the provider itself is to be asked: only if the package does not know it."""
        packaged = self._facts_file.packaged.get(_key(ref), Facts())
        age_s = trio.current_time() - self._listed_at.get(provider, float("-inf"))
        again_s = LISTING_MAX_AGE_S if known.context_window else LISTING_MAX_AGE_UNKNOWN_S
        return packaged.context_window is None and age_s >= again_s

    async def _list(self, provider: str, base_url: str) -> None:
        try:
            await self.listing(provider, base_url)
        except ModelError as error:
            log.info("no_listing", provider=provider, reason=error.message)

    async def _ask_package(self, wanted: set[ModelRef]) -> None:
        ref = [one for one in wanted if self._is_unasked(one)]
        if not ref:
            return
        try:
            with trio.fail_after(PACKAGE_TIMEOUT_S):
                done = await trio.run_process(
                    PACKAGE_COMMAND,
                    stdin=msgspec.json.encode(ref),
                    capture_stdout=True,
                    stderr=subprocess.DEVNULL,
                    env=self._variables,
                )
            answers = msgspec.json.decode(done.stdout, type=tuple[Facts | None, ...])
        except (OSError, subprocess.SubprocessError, trio.TooSlowError, msgspec.DecodeError) as e:
            log.warning("no_prices", reason=f"{type(e).__name__}: {e}")
            answers = (None,) * len(ref)
        for one, facts in zip(ref, answers, strict=False):
            _store(self._facts_file.packaged, _key(one), facts or Facts())


def is_public(base_url: str) -> bool:
    """Whether a provider is one that others know too: it has a name with a dot, and no address."""
    host = urlsplit(base_url).hostname or ""
    try:
        ip_address(host)
    except ValueError:
        return "." in host and not host.endswith((".local", ".localhost", ".lan", ".internal"))
    return False


def _key(ref: ModelRef) -> str:
    return f"{ref.base_url.rstrip('/')} {ref.model}"


def _store(kept: dict[str, Facts], key: str, facts: Facts) -> None:
    """Keep facts as the newest ones; the oldest make room."""
    kept.pop(key, None)
    kept[key] = facts
    while len(kept) > ENTRIES_MAX:
        del kept[next(iter(kept))]


def _stamp() -> str:
    """The state of the package, without loading it."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return ""
    data = Path(spec.origin).with_name("data.py")
    return str(data.stat().st_mtime_ns) if data.exists() else ""


def _read(file: Path | None) -> CatalogFile:
    """What was kept, but for what an older package said; nothing if it can't be read."""
    stamp = _stamp()
    kept = CatalogFile()
    if file is not None:
        with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            kept = msgspec.json.decode(file.read_bytes(), type=CatalogFile)
    return kept if kept.package == stamp else CatalogFile(stamp, {}, kept.listed)


def _write(file: Path, data: bytes) -> None:
    new = file.with_suffix(".new")
    try:
        with open(new, "wb", opener=open_private) as opened:
            opened.write(data)
        new.replace(file)
    except OSError as error:
        log.warning("catalog_not_kept", file=str(file), reason=error.strerror)
