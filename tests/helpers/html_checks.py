"""Pages as a browser renders them, and names that would like to be more than names."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

HOSTILE = (
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=1">',
    "</style><h1>x</h1>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "&lt;b&gt;",
    "\u202eesrever",
    "a" * 300,
    "]]><!--",
)


class Document(HTMLParser):
    """What of a page the tests ask for: elements with their attributes and their text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())

    def tags(self) -> set[str]:
        return {tag for tag, _ in self.elements}

    def of_class(self, *names: str) -> list[dict[str, str | None]]:
        return [of for _, of in self.elements if {*names} <= {*(of.get("class") or "").split()}]

    def body(self) -> dict[str, str | None]:
        return next(of for tag, of in self.elements if tag == "body")


Browse = Callable[..., Document]


@pytest.fixture(scope="session")
def chromium() -> str:
    found = shutil.which("chromium")
    if found is None:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail("chromium is missing")
        pytest.skip("chromium is not installed")
    return found


@pytest.fixture
def browse(chromium: str, tmp_path: Path) -> Browse:
    """Open a page and return what became of it."""

    def opened(text: str, *, width: int = 1200, dark: bool = False) -> Document:
        file = tmp_path / "page.html"
        file.write_text(text, "utf-8")
        command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"--window-size={width},900"]
        command += [f"--user-data-dir={tmp_path / 'profile'}", "--host-resolver-rules=MAP * ~NOTFOUND"]
        command += [f"--blink-settings=preferredColorScheme={0 if dark else 1}", file.as_uri()]
        done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=120)
        return Document(done.stdout)

    return opened


NOTE = """<script>
const all = [...document.querySelectorAll('body *')].filter(e => !e.closest('.wide, .defs'));
document.body.dataset.overflow = Math.max(0, document.documentElement.scrollWidth - innerWidth);
const right = e => e.getBoundingClientRect().right, left = e => e.getBoundingClientRect().left;
const beyond = (e, svg) => left(e) < left(svg) - 1 || right(e) > right(svg) + 1;
const leaves = e => e.tagName == 'text' && beyond(e, e.closest('svg'));
document.body.dataset.outside = all.filter(e => right(e) > innerWidth + 1 || leaves(e)).length;
document.body.dataset.ground = getComputedStyle(document.body).backgroundColor;
document.body.dataset.ink = getComputedStyle(document.body).color;
const looks = e => getComputedStyle(e).backgroundColor + getComputedStyle(e).backgroundImage;
document.body.dataset.looks = [...new Set([...document.querySelectorAll('.key')].map(looks))].length;
document.body.dataset.fills = [...new Set([...document.querySelectorAll('.ribbon')]
  .map(e => getComputedStyle(e).fill))].length;
document.body.dataset.ribbons = [...document.querySelectorAll('.ribbon')].filter(e => e.getBBox().width > 0).length;
</script></body>"""


def with_notes(text: str, *, unprotected: bool = True) -> str:
    """Return the page with a script that notes how it is laid out; the page itself would not run it."""
    if unprotected:
        protection = next(line for line in text.splitlines() if "Content-Security-Policy" in line)
        text = text.replace(protection, "")
    return text.replace("</body>", NOTE)
