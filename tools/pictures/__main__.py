"""python -m tools.pictures"""

from __future__ import annotations

from tools.pictures import FOLDER, pictures

if __name__ == "__main__":
    for name, content in pictures().items():
        (FOLDER / name).write_text(content, "utf-8")
