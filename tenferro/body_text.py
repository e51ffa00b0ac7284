"""A program in, its text out in which bodies of loops and choices stand below the operations that run them."""

from __future__ import annotations

from collections.abc import Callable

from tenferro.lowering.bodies import lowered
from tenferro.lowering.exec_program import ExecProgram
from tenferro.tracer.bodies import Body
from tenferro.tracer.op import bodies_in
from tenferro.tracer.program import Params, SemanticProgram


def program_text(program: SemanticProgram) -> str:
    """The program as it was traced."""
    return program.text(_Bodies(lambda body: body.program).below)


def exec_text(program: ExecProgram) -> str:
    """The instructions; those of bodies are what the passes leave of them."""
    return program.text(_Bodies(lambda body: lowered(body).program).below)


class _Bodies:
    """Each body once, nested ones in the body that runs them."""

    def __init__(self, form: Callable[[Body], SemanticProgram | ExecProgram]) -> None:
        self._form = form
        self._shown: set[Body] = set()

    def below(self, params: Params) -> list[str]:
        """The lines below an operation with these parameters."""
        found = []
        for body in bodies_in(params):
            if body not in self._shown:
                self._shown.add(body)
                _, *lines = self._form(body).text(self.below).splitlines()
                found += [f"body {body!r}", *lines]
        return found


__all__ = ["exec_text", "program_text"]
