"""What MkDocs does with the pages: links to files of the repository lead there, nothing is loaded from elsewhere."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\]\((?P<target>\.\./[^)\s#]*)(?P<anchor>#[^)\s]*)?\)")
_FOREIGN_SCRIPT = re.compile(r'<script src="https?://[^"]*/iframe-worker/shim"></script>')
_OWN_SCRIPT = "assets/search-from-a-folder.js"
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


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
        kind = "blob" if "." in posixpath.basename(target) else "tree"
        return f"]({repository}/{kind}/main/{target}{found['anchor'] or ''})"

    return _LINK.sub(replaced, text)
