"""Random programs that once failed, shrunk: each stays a test."""

from __future__ import annotations

from tests.random_programs.generator import RandomProgram

KEPT: tuple[RandomProgram, ...] = ()
