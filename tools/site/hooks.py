"""What MkDocs does with the pages: links to files of the repository lead there, nothing is loaded from elsewhere."""

from __future__ import annotations

import ast
import posixpath
import re
from itertools import groupby
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from tools.reference import PAGES

_ROOT = Path(__file__).parents[2]

_RELATIVE = re.compile(r"\]\((?P<target>(?!https?:)[^)\s#]+)")
_LINK = re.compile(r"\]\((?P<target>\.\./[^)\s#]*)(?P<anchor>#[^)\s]*)?\)")
_FOREIGN_SCRIPT = re.compile(r'<script src="https?://[^"]*/iframe-worker/shim"></script>')
_OWN_SCRIPT = "assets/search-from-a-folder.js"
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def on_files(files: Any, *, config: Any) -> Any:
    """Begin with the README, and add the pages that are made from the code."""
    pages = files.get_file_from_path("index.md")
    files.remove(pages)
    files.append(File.generated(config, "pages.md", content=pages.content_string))
    for uri, text in MADE.items():
        files.append(File.generated(config, uri, content=text()))
    return files


def start_page() -> str:
    """Return the README with its links as of a page in `docs/`."""
    text = _RELATIVE.sub(r"](../\g<target>", (_ROOT / "README.md").read_text("utf-8"))
    return text.replace("](../docs/index.md", "](pages.md").replace("](../docs/", "](")


def module_map() -> str:
    """Return a page with the first line of each module's docstring."""
    lines = ["# Modules", "", "What each module is for, from its docstring. `DESIGN.md` has how they fit together.", ""]
    modules = sorted((_ROOT / "rackassign").rglob("*.py"), key=lambda file: (file.parent, file.name))
    for folder, of_folder in groupby(modules, lambda file: file.parent):
        lines += [f"## `{folder.relative_to(_ROOT).as_posix()}/`", "", "| module | subject |", "| --- | --- |"]
        for file in of_folder:
            docstring = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
            subject = " ".join(docstring.partition("\n\n")[0].split()).replace("|", "\\|")
            lines.append(f"| `{file.name}` | {subject} |")
        lines.append("")
    return "\n".join(lines)


MADE = {"index.md": start_page, "reference/modules.md": module_map, **PAGES}
"""The pages that are not kept as text."""

_PAGE_OF = {
    "README.md": "index.md",
    "pyproject.toml": "reference/dependencies.md",
    "rackassign": "reference/python-api.md",
    "rackassign/cli": "reference/command-options.md",
    "rackassign/errors.py": "reference/errors.md",
    "rackassign/monitoring": "reference/metrics.md",
}
"""Files and folders of the repository to which pages link, and the page that the site has of each."""


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Return a page whose links out of the folder of the documentation are links to the repository."""
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))
    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [_linked(markdown[end : fence.start()], folder, config["repo_url"]), fence[0]]
        end = fence.end()
    return "".join([*parts, _linked(markdown[end:], folder, config["repo_url"])])


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Return the HTML of a page with a script of ours where the search of Material loads one from a server."""
    ours = posixpath.relpath(_OWN_SCRIPT, posixpath.dirname(page.file.dest_uri) or ".")
    return _FOREIGN_SCRIPT.sub(f'<script src="{ours}"></script>', output)


def _linked(text: str, folder: str, repository: str) -> str:
    def replaced(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, found["target"]))
        if target.startswith("docs/"):
            return found[0]
        if target in _PAGE_OF:
            page = posixpath.relpath(f"docs/{_PAGE_OF[target]}", folder)
            return f"]({page}{found['anchor'] or ''})"
        kind = "blob" if "." in posixpath.basename(target) else "tree"
        return f"]({repository}/{kind}/main/{target}{found['anchor'] or ''})"

    return _LINK.sub(replaced, text)
