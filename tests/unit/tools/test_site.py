"""The documentation as a site: nothing is missing, no link is broken, and nothing is loaded from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from tools.site.hooks import MADE, on_page_markdown, on_post_page

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "tools" / "site" / "mkdocs.yml"
_LOADED = re.compile(r'<(?:script|img|iframe)[^>]* src="([^"]*)"|<link[^>]* rel="stylesheet"[^>]* href="([^"]*)"')


def page(uri: str) -> SimpleNamespace:
    return SimpleNamespace(file=SimpleNamespace(src_uri=uri, dest_uri=uri.replace(".md", ".html")))


def linked(uri: str, markdown: str) -> str:
    return on_page_markdown(markdown, page=page(uri), config={"repo_url": "https://host/us"})


@pytest.mark.parametrize(
    ("uri", "given", "found"),
    [
        ("pages.md", "[a](../README.md)", "[a](index.md)"),
        ("how-to/a.md", "[a](../../README.md#install)", "[a](../index.md#install)"),
        ("index.md", "[a](../SECURITY.md)", "[a](https://host/us/blob/main/SECURITY.md)"),
        ("how-to/a.md", "[a](../../examples/quix/)", "[a](https://host/us/tree/main/examples/quix)"),
        ("how-to/a.md", "[a](../../rackassign/cli/)", "[a](../reference/command-options.md)"),
        ("how-to/a.md", "[a](../reference/b.md#c)", "[a](../reference/b.md#c)"),
        ("how-to/a.md", "[a](b.md)", "[a](b.md)"),
        ("how-to/a.md", "```md\n[a](../../x.py)\n```", "```md\n[a](../../x.py)\n```"),
        ("how-to/a.md", "```\nx\n```\n[a](../../x.py)", "```\nx\n```\n[a](https://host/us/blob/main/x.py)"),
    ],
)
def test_links_out_of_the_documentation_lead_to_the_repository(uri: str, given: str, found: str) -> None:
    assert linked(uri, given) == found


def test_no_script_comes_from_elsewhere() -> None:
    foreign = '<script src="https://cdn.example/iframe-worker/shim"></script><script src="own.js"></script>'
    ours = '<script src="../assets/search-from-a-folder.js"></script><script src="own.js"></script>'
    assert on_post_page(foreign, page=page("how-to/a.md")) == ours
    # Another one is left for the test of the whole site to find.
    other = '<script src="https://cdn.example/other.js"></script>'
    assert on_post_page(other, page=page("how-to/a.md")) == other


def test_each_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r": (\S+\.md)$", CONFIG.read_text("utf-8"), re.MULTILINE))
    pages = {str(file.relative_to(ROOT / "docs")) for file in (ROOT / "docs").rglob("*.md")}
    assert listed == {*pages, "pages.md", *MADE}


def test_pages_are_built_strictly() -> None:
    # Without it MkDocs logs a broken link, and all else goes on.
    assert yaml.safe_load(CONFIG.read_text("utf-8"))["strict"] is True


def test_the_package_names_the_address_of_the_site() -> None:
    address = yaml.safe_load(CONFIG.read_text("utf-8")).get("site_url")
    assert f'Documentation = "{address}"' in (ROOT / "pyproject.toml").read_text("utf-8").splitlines()


@pytest.mark.release
def test_the_site_is_built_without_a_warning_and_opens_from_a_folder(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(CONFIG), "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, capture_output=True, check=False, cwd=ROOT, env=environment, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    files = list(tmp_path.rglob("*.html"))
    assert len(files) > len(list((ROOT / "docs").rglob("*.md")))
    for file in files:
        for script, style in _LOADED.findall(file.read_text("utf-8")):
            source = script or style
            if file.name != "404.html":
                assert not re.match(r"(https?:)?//", source), f"{file}: {source}"
                assert (file.parent / source.partition("?")[0]).exists(), f"{file}: {source}"
    # Docstrings are among the pages.
    assert "Takes all arguments of" in (tmp_path / "reference" / "python-api.html").read_text("utf-8")
