"""The documents: their code prints what they say, their links lead somewhere, generated pages are up to date."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)(?:#[^)]*)?\)")


def tool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if "```python\n" in d.read_text()], ids=lambda d: d.name)
def test_code_prints_what_the_document_says(document: Path):
    done = tool("tools/run_docs.py", str(document))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_text_block_is_found(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n")
    done = tool("tools/run_docs.py", str(page))
    assert done.returncode == 1
    assert "-3" in done.stdout
    assert "+2" in done.stdout
    tool("tools/run_docs.py", "--write", str(page))
    assert page.read_text() == "```python\nprint(1 + 1)\n```\n\n```text\n2\n```\n"


def test_the_tool_says_how_it_is_used():
    assert "--write" in tool("tools/run_docs.py", "--help").stdout
    for arguments in ((), ("no/such.md",)):
        done = tool("tools/run_docs.py", *arguments)
        assert done.returncode == 2
        assert done.stderr.startswith("usage: run_docs.py")
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_links_lead_somewhere(document: Path):
    prose = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    missing = [t for t in LINK.findall(prose) if not (document.parent / t).exists()]
    assert missing == []


def test_ops_page_is_up_to_date():
    done = tool("tools/make_ops_doc.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


INTERNAL = ("TenferroError", "DamagedError")
"""The base class, and what a damaged file raises, which is then read as absent."""


def test_every_error_has_a_cure():
    text = (ROOT / "docs" / "errors.md").read_text()
    names = {
        node.name
        for file in (ROOT / "tracer").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef) and node.name.endswith(("Error", "Warning")) and node.name not in INTERNAL
    }
    assert {n for n in names if f"`{n}`" not in text} == set()


def test_every_document_is_named_in_the_readme():
    readme = (ROOT / "README.md").read_text()
    assert {d.name for d in DOCUMENTS[1:] if f"docs/{d.name}" not in readme} == set()
