"""The pages for people: links lead somewhere, the site shows them, the recording is current."""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[1]
MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])

README_LINES_MAX = 60
PICTURE_BYTES_MAX = 300_000
"""What a reader loads before the first screen of README is complete."""

IN_HTML = re.compile(r'\b(?:src|srcset|href)="([^"]+)"')
OF_A_MACHINE = re.compile(r"/(?:tmp|root|work|usr|opt|home/(?!charlie))\b")
COMPARED = ("h1", "h2", "h3", "li", "ul", "ol", "table", "tr", "pre", "img")


def pages() -> list[Path]:
    """Return the pages, relative to the root."""
    listing = ("git", "ls-files", "--cached", "--others", "--exclude-standard")
    words = (*listing, "--", "*.md", ":!tests", ":!.github")
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return [Path(line) for line in listed.splitlines()]


@cache
def tokens(page: Path) -> list[Token]:
    """Return the parts of a page; those inside a line come after the line."""
    parsed = MARKDOWN.parse(page.read_text(encoding="utf-8"))
    return [one for token in parsed for one in (token, *(token.children or ()))]


def targets(page: Path) -> Iterator[str]:
    """Yield what a page links to or shows, except addresses of other sites."""
    for token in tokens(page):
        named = [str(token.attrs.get("href") or token.attrs.get("src") or "")]
        if token.type in {"html_block", "html_inline"}:
            named = IN_HTML.findall(token.content)
        yield from (unquote(one) for one in named if one and "://" not in one)


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings as code hosts make them."""
    found: list[str] = []
    parts = tokens(page)
    for at, token in enumerate(parts):
        if token.type == "heading_open":
            text = "".join(one.content for one in parts[at + 1].children or ())
            found.append(re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-"))
    seen = Counter[str]()
    for number, anchor in enumerate(found):
        found[number] = f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor
        seen[anchor] += 1
    return set(found)


def test_links_in_the_repository_lead_to_files_and_headings() -> None:
    broken: list[str] = []
    for page in pages():
        for target in targets(ROOT / page):
            name, _, anchor = target.partition("#")
            file = (ROOT / page.parent / name).resolve() if name else ROOT / page
            if not file.exists() or (anchor and anchor not in anchors(file)):
                broken.append(f"{page}: {target}")
    assert broken == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= README_LINES_MAX


def test_the_recorded_minute_is_small_and_shows_no_machine() -> None:
    text = (ROOT / "docs/minute.svg").read_text(encoding="utf-8")
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert len(text.encode()) <= PICTURE_BYTES_MAX
    assert OF_A_MACHINE.findall(text) == []


@pytest.mark.nightly
def test_the_minute_can_be_recorded_again(tmp_path: Path) -> None:
    picture = tmp_path / "minute.svg"
    subprocess.run([sys.executable, ROOT / "scripts/minute.py", picture], check=True)
    text = picture.read_text(encoding="utf-8")
    for shown in ("The daemon stopped during this turn", "allowed once by", "put back: shop/"):
        assert shown in text
    assert len(text.encode()) <= PICTURE_BYTES_MAX


class Html(HTMLParser):
    """A page of the site."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.ids, self.links = set[str](), list[str]()
        self.loaded, self.navigation = list[str](), set[str]()
        self.shown = Counter[str]()
        self._inside = Counter[str]()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self._inside[tag] += 1
        self.ids.add(values.get("id", ""))
        link = values.get("href") or values.get("src") or values.get("srcset")
        if link and tag in {"a", "img", "source"}:
            self.links.append(link)
        if link and tag in {"img", "source", "script", "link", "iframe"}:
            self.loaded.append(link)
        if link and self._inside["nav"]:
            self.navigation.add(link)
        if self._inside["article"] and tag in COMPARED:
            self.shown[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        self._inside[tag] -= 1


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly."""
    into = tmp_path_factory.mktemp("site") / "site"
    subprocess.run([ROOT / "scripts/site", into], check=True, stdin=subprocess.DEVNULL)
    return into


def html_of(page: Path) -> Path:
    """Return the place of a page in the site."""
    return page.with_name("index.html" if page.name == "README.md" else f"{page.stem}.html")


@pytest.mark.nightly
def test_the_site_has_every_page_in_its_navigation_as_code_hosts_show_it(site: Path) -> None:
    navigation = {(site / link).resolve() for link in Html(site / "index.html").navigation}
    for page in pages():
        shown = Html(site / html_of(page)).shown
        as_text = MARKDOWN.render((ROOT / page).read_text(encoding="utf-8"))
        wanted = Counter(re.findall(rf"<({'|'.join(COMPARED)})\b", as_text))
        assert shown == wanted, page
        assert site / html_of(page) in navigation


@pytest.mark.nightly
def test_links_in_the_site_lead_somewhere_and_nothing_comes_from_elsewhere(site: Path) -> None:
    files = {file: Html(file) for file in site.rglob("*.html") if file.name != "404.html"}
    broken: list[str] = []
    for file, html in files.items():
        assert [one for one in html.loaded if "//" in one] == []
        for link in html.links:
            name, _, anchor = unquote(link).partition("#")
            target = (file.parent / name).resolve() if name else file
            if "://" in link or "mailto:" in link:
                continue
            if not target.is_file() or (anchor and anchor not in files[target].ids):
                broken.append(f"{file.relative_to(site)}: {link}")
    assert broken == []
