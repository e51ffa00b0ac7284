"""In: package-dir in pyproject.toml. Out: build/typed/tenferro, a tree of links that mypy and pyright can follow.

Type checkers do not see through the import hook of an editable install. Run it, then ``mypy build/typed/tenferro``.
"""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def make(root: Path = ROOT) -> Path:
    """Build the tree anew and return the folder that goes into ``mypy_path``."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    folders: dict[str, str] = settings["tool"]["setuptools"]["package-dir"]
    typed = root / "build" / "typed"
    shutil.rmtree(typed, ignore_errors=True)
    package = typed / "tenferro"
    package.mkdir(parents=True)
    for entry in (root / folders["tenferro"]).iterdir():
        if entry.name != "__pycache__":
            (package / entry.name).symlink_to(entry)
    for name, folder in folders.items():
        if name != "tenferro":
            (package / name.removeprefix("tenferro.")).symlink_to(root / folder)
    return typed


if __name__ == "__main__":
    print(make())
