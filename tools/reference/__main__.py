"""Write all of it: `python -m tools.reference`. Tests compare the files with what would be written."""

from __future__ import annotations

from tools.reference.files import FILES

for path, text in FILES.items():
    path.write_text(text(), "utf-8")
