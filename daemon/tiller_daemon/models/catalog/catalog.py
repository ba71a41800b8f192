"""A cache of facts about the models in use, filled in the background so that no turn waits for it.

`facts` returns the facts known at the moment. The task `run` looks up missing facts in the
provider's listing and in a package of prices, and saves them to a file for the first turn after a
restart. Configured values take precedence; `providers` ensures that.
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
from msgspec import Struct

from tiller_daemon.isolation import OPTIONS
from tiller_daemon.models.base import ModelError
from tiller_daemon.models.catalog.facts import Facts, ModelRef
from tiller_daemon.models.catalog.listing import Listing
from tiller_daemon.private import replace_private

log = structlog.get_logger()

PACKAGE = "genai_prices"
PACKAGE_COMMAND = (sys.executable, *OPTIONS, "-m", "tiller_daemon.models.catalog.price_list")
PACKAGE_TIMEOUT_S = 30.0
"""Limit for the price program, which takes half a second on an idle machine."""

LISTING_TIMEOUT_S = 3.0
"""Limit for a provider's listing, for which only `tiller models` makes the user wait."""

LISTING_MAX_AGE_S = 600.0
LISTING_MAX_AGE_UNKNOWN_S = 60.0
"""The age at which a listing is refreshed when one of its models is used. The second value applies
if the model's context window is unknown. Local servers get restarted with other models, and some
report the context window only after the model has been loaded."""

ENTRIES_MAX = 500
"""Maximum number of models in each part of the file; more than anybody uses."""

PASSED_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "HOME", "LANG")
"""The variables that the price program gets. Keys are not among them, because it needs none."""


class CatalogFile(Struct):
    """The content of the file. The keys of both tables are made by `_key`."""

    package: str = ""
    """The version of the package from which `packaged` was read."""

    packaged: dict[str, Facts] = {}
    """Facts from the package of prices; empty for a model that the package does not know."""

    listed: dict[str, Facts] = {}
    """Facts from providers' listings."""


FetchListing = Callable[[str], Awaitable[Listing]]
"""Requests the listing of the provider with this name. Raises `ModelError`."""


class Catalog:
    """Facts about models. `file` must be in a directory that only the user can write to."""

    def __init__(self, file: Path | None, fetch: FetchListing, environ: Mapping[str, str]) -> None:
        self._file = file
        self._fetch = fetch
        self._variables = {name: environ[name] for name in PASSED_VARIABLES if name in environ}
        self._saved = _read(file)
        self._listed_at: dict[str, float] = {}
        self._pending: dict[str, set[ModelRef]] = {}
        self._wakeup = trio.Event()

    def facts(self, provider: str, ref: ModelRef) -> Facts:
        """Return the facts known about a model now, and let `run` look up missing ones."""
        known = self._known(ref)
        if self._is_unasked(ref) or self._is_due(provider, ref, known):
            self._pending.setdefault(provider, set()).add(ref)
            self._wakeup.set()
        return known

    async def listing(self, provider: str, base_url: str) -> Listing:
        """Request a provider's listing now and save its facts.

        Raises `ModelError`, with the kind `timeout` after `LISTING_TIMEOUT_S`.
        """
        self._listed_at[provider] = trio.current_time()
        with trio.move_on_after(LISTING_TIMEOUT_S):
            listing = await self._fetch(provider)
            for name, facts in listing.items():
                if facts != Facts():
                    _store(self._saved.listed, _key(ModelRef(base_url, name)), facts)
            return listing
        limit = f"{LISTING_TIMEOUT_S:g} s"
        raise ModelError("timeout", f"Provider {provider} did not list its models within {limit}.")

    async def run(self) -> None:
        """Look up facts that `facts` lacked, until cancelled. If that fails, they stay unknown."""
        while True:
            await self._wakeup.wait()
            self._wakeup = trio.Event()
            pending, self._pending = self._pending, {}
            saved = self._saved
            before = saved.packaged.copy(), saved.listed.copy()
            # The package comes first: listings are only requested for facts that it lacks.
            await self._ask_package({ref for refs in pending.values() for ref in refs})
            async with trio.open_nursery() as nursery:
                for provider, refs in pending.items():
                    if any(self._is_due(provider, ref, self._known(ref)) for ref in refs):
                        nursery.start_soon(self._list, provider, next(iter(refs)).base_url)
            if self._file and (saved.packaged, saved.listed) != before:
                data = msgspec.json.encode(saved)
                await trio.to_thread.run_sync(_write, self._file, data)

    def _known(self, ref: ModelRef) -> Facts:
        key = _key(ref)
        return self._saved.listed.get(key, Facts()).over(self._saved.packaged.get(key, Facts()))

    def _is_unasked(self, ref: ModelRef) -> bool:
        """Whether the package may know the model but has not been queried for it."""
        return is_public(ref.base_url) and _key(ref) not in self._saved.packaged

    def _is_due(self, provider: str, ref: ModelRef, known: Facts) -> bool:
        """Whether a listing is due: the package lacks the window, and the last listing is old."""
        packaged = self._saved.packaged.get(_key(ref), Facts())
        age_s = trio.current_time() - self._listed_at.get(provider, float("-inf"))
        max_age_s = LISTING_MAX_AGE_S if known.context_window else LISTING_MAX_AGE_UNKNOWN_S
        return packaged.context_window is None and age_s >= max_age_s

    async def _list(self, provider: str, base_url: str) -> None:
        try:
            await self.listing(provider, base_url)
        except ModelError as error:
            log.info("no_listing", provider=provider, reason=error.message)

    async def _ask_package(self, refs: set[ModelRef]) -> None:
        unasked = [ref for ref in refs if self._is_unasked(ref)]
        if not unasked:
            return
        try:
            with trio.fail_after(PACKAGE_TIMEOUT_S):
                done = await trio.run_process(
                    PACKAGE_COMMAND,
                    stdin=msgspec.json.encode(unasked),
                    capture_stdout=True,
                    stderr=subprocess.DEVNULL,
                    env=self._variables,
                )
            answers = msgspec.json.decode(done.stdout, type=tuple[Facts | None, ...])
        except (OSError, subprocess.SubprocessError, trio.TooSlowError, msgspec.DecodeError) as e:
            log.warning("no_prices", reason=f"{type(e).__name__}: {e}")
            # Store them as unknown, so that a failing program is not started in every turn.
            answers = (None,) * len(unasked)
        for ref, facts in zip(unasked, answers, strict=False):
            _store(self._saved.packaged, _key(ref), facts or Facts())


def is_public(base_url: str) -> bool:
    """Whether `base_url` names a host on the public internet, judging by the name alone.

    A local server may use any model name, so its models are not looked up in the package of prices.
    """
    host = urlsplit(base_url).hostname or ""
    try:
        ip_address(host)
    except ValueError:
        return "." in host and not host.endswith((".local", ".localhost", ".lan", ".internal"))
    return False


def _key(ref: ModelRef) -> str:
    return f"{ref.base_url.rstrip('/')} {ref.model}"


def _store(entries: dict[str, Facts], key: str, facts: Facts) -> None:
    """Store facts as the newest entry and drop the oldest beyond `ENTRIES_MAX`."""
    entries.pop(key, None)
    entries[key] = facts
    while len(entries) > ENTRIES_MAX:
        del entries[next(iter(entries))]


def _package_version() -> str:
    """Return the modification time of the package's data, without importing the package."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return ""
    data = Path(spec.origin).with_name("data.py")
    return str(data.stat().st_mtime_ns) if data.exists() else ""


def _read(file: Path | None) -> CatalogFile:
    """Read the file; drop facts from another version of the package. Empty if unreadable."""
    package = _package_version()
    saved = CatalogFile()
    if file is not None:
        with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            saved = msgspec.json.decode(file.read_bytes(), type=CatalogFile)
    return saved if saved.package == package else CatalogFile(package, {}, saved.listed)


def _write(file: Path, data: bytes) -> None:
    try:
        replace_private(file, data)
    except OSError as error:
        log.warning("catalog_not_kept", file=str(file), reason=error.strerror)
