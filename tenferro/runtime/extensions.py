"""Extension families: operations that the core does not have, with what every stage must know of them.

A *family* has a versioned name, an inference rule and a NumPy reference; a *module* brings families, their executors on
engines, and is installed into a runtime. Executors get a cache that is lent for the run.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any

from tenferro.engines.engine import Engine, Executor
from tenferro.engines.errors import BrokenEngineError, ConfigurationError, EngineFailure, ProviderContractError
from tenferro.evaluation import evaluator
from tenferro.lowering.plan import CallStep, Plan
from tenferro.runtime.identity import checked_family, checked_name
from tenferro.runtime.specialization import Known, Need, Signature, Specializer
from tenferro.tracer.exact import static_key
from tenferro.tracer.forking import Renewed
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.op import Absent, BatchRule, Constant, Extension, JvpRule, Op, TransposeRule
from tenferro.tracer.program import ArrayType, Params
from tenferro.tracer.records import dataclass
from tenferro.tracer.trace import current_trace

MAX_CACHED = 64
_UNKNOWN = Absent("its extension family brings no such rule")


class FamilyCache:
    """What an executor keeps between runs, such as plans: the least recently used go. Thread-safe."""

    def __init__(self, max_entries: int = MAX_CACHED) -> None:
        self._entries: OrderedDict[Hashable, Any] = OrderedDict()
        self._held = Renewed()
        self._max_entries = max_entries

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The entry of this key, made by ``make`` where there is none."""
        with self._held.lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key]
        made = make()
        with self._held.lock:
            found = self._entries.setdefault(key, made)
            while len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)
        return found

    def clear(self) -> None:
        """Forget everything."""
        with self._held.lock:
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)


@dataclass(frozen=True, slots=True)
class Lent:
    """What an executor is lent for one call: the engine and the family's cache there."""

    engine: Engine
    cache: FamilyCache


@dataclass(frozen=True)
class Family:
    """An operation from outside the core.

    name: ``library.operation.v1``; the version counts up with every change of meaning. infer: (types of the operands,
    params) → a tuple with the types of the results; ProviderContractError for anything else. reference: (*arrays,
    **params) → array, or a tuple of them; it defines the meaning. ordered: the operation has effects, so that calls
    keep their order and are never dropped or shared. jvp, transpose, batch: what ``tn.grad`` and ``tn.vmap`` make of
    it, as columns of the table of ops (``tenferro.tracer.op``); without them they refuse it.

    The family itself is a function for traced and eager code: ``family(x, y, width=3)``."""

    name: str
    infer: Callable[[Sequence[ArrayType], Params], tuple[ArrayType, ...]]
    reference: Callable[..., Any]
    ordered: bool = False
    jvp: JvpRule | Constant | Absent = _UNKNOWN
    transpose: TransposeRule | Absent = _UNKNOWN
    batch: BatchRule | Absent = _UNKNOWN
    op: Op = field(init=False, repr=False, compare=False)
    _jitted: FamilyCache = field(default_factory=FamilyCache, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checked_family(self.name)
        form, rules = Extension(self.name, self.ordered), (self.jvp, self.transpose, self.batch)
        object.__setattr__(self, "op", Op(self.name, form, self._types, self.reference, *rules))

    def _types(self, types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
        found: Any = self.infer(types, params)
        if not isinstance(found, tuple | list) or not all(isinstance(t, ArrayType) for t in found):
            raise ProviderContractError(f"{self.name}: infer gave {found!r}; a tuple of ArrayType is needed")
        return tuple(found)

    def __call__(self, *arrays: Any, **params: Hashable) -> Any:
        """The operation on arrays; sizes of a traced function may be parameters."""
        settings = {k: self._setting(k, v) for k, v in params.items()}
        trace = current_trace()
        if trace is None:
            return self._run(settings, arrays)
        from tenferro.tracer.traced import fresh, operand  # where a trace runs, it is loaded

        values = trace.emit(self.op, [operand(trace, x, self.name)[0] for x in arrays], **settings)
        made = [fresh(trace, v, scalar=False) for v in values]
        return made[0] if len(made) == 1 else tuple(made)

    def _run(self, settings: Mapping[str, Hashable], arrays: Sequence[Any]) -> Any:
        """The operation at once; errors that tell no line get a note of the caller's."""
        try:
            return self._eager(settings)(*arrays)
        except Exception as error:
            if not any(" (at " in text for text in (str(error), *getattr(error, "__notes__", ()))):
                error.add_note(f"{self.name}: called{at(user_line())}")
            raise

    def _eager(self, settings: Mapping[str, Hashable]) -> Any:
        key = tuple([(k, static_key(v)) for k, v in sorted(settings.items())])

        def make() -> Any:
            return evaluator().jitted(lambda *arrays: self(*arrays, **settings))

        return self._jitted.get(key, make)

    def _setting(self, name: str, value: Any) -> Any:
        """A parameter as programs have it: sizes as expressions. TypeError for what is not hashable."""
        if hasattr(value, "live_trace"):
            from tenferro.tracer.dim import Dim, as_extent

            if isinstance(value, Dim):
                return as_extent(value)
        if isinstance(value, tuple):
            return tuple(self._setting(name, v) for v in value)
        try:
            hash(value)
        except TypeError:
            text = f"{self.name}: {name} is a {type(value).__name__}; a hashable value is needed{at(user_line())}"
            raise TypeError(text) from None
        return value


@dataclass(frozen=True)
class ExtensionModule:
    """Families and where they run. executors: (family's name, hardware such as ``"cpu"`` or an engine's id) →
    ``execute(lent, *arrays, **params)``, which returns new arrays of the types that the family infers, keeps none of
    them and writes to no operand. providers: the same → ``provide(lent, known, **params)``, which makes executors
    ``(*arrays, **params)`` for what is ``Known`` of each operand, or returns a ``Need`` for more; each is made once. A
    family with neither for an engine runs as its reference where the engine takes NumPy calls (``allow_reference``),
    and nowhere else."""

    name: str
    families: tuple[Family, ...]
    executors: Mapping[tuple[str, str], Callable[..., Any]] = field(default_factory=dict)
    allow_reference: bool = True
    providers: Mapping[tuple[str, str], Callable[..., Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked_name("module", self.name)
        names = [f.name for f in self.families]
        if len(set(names)) != len(names):
            raise ConfigurationError(f"module {self.name}: a family comes twice; names must differ")
        for family, where in (*self.executors, *self.providers):
            checked_name("hardware", where)
            if family not in names:
                raise ConfigurationError(f"module {self.name}: an executor is for {family}, which it does not bring")
        for family, where in self.executors.keys() & self.providers.keys():
            raise ConfigurationError(f"module {self.name}: {family} has an executor and a provider on {where}; one")


class Families:
    """The families of one configuration. Immutable; the caches in it are what runs are lent."""

    def __init__(self, modules: Sequence[ExtensionModule] = ()) -> None:
        self.modules = tuple(modules)
        self._by_name: dict[str, tuple[Family, ExtensionModule]] = {}
        self._caches: dict[tuple[str, str], FamilyCache] = {}
        self._answers: dict[tuple[str, str], Specializer[Executor]] = {}
        self._held = Renewed()
        for module in modules:
            for family in module.families:
                if family.name in self._by_name:
                    raise ConfigurationError(f"install_extension: family {family.name} is installed already")
                self._by_name[family.name] = (family, module)

    def serves(self, family: str, engine: Engine) -> bool:
        """Whether the family runs on this engine."""
        if family not in self._by_name:
            return False
        _, module = self._by_name[family]
        return _provider(module, family, engine) is not None or (
            module.allow_reference and "library" in engine.capabilities
        )

    def missing(self, family: str, engines: str) -> str:
        """Why the family does not run on any of these engines."""
        if family not in self._by_name:
            return f"family {family} is not installed; its module is needed (install_extension)"
        return f"family {family} has no executor for {engines}; one is needed"

    def executors(self, plan: Plan, engine: Engine) -> dict[str, Executor]:
        """The executors for what is in the plan, each with its cache."""
        found: dict[str, Executor] = {}
        for step in plan.steps:
            form = step.instruction.op.form if isinstance(step, CallStep) else None
            if isinstance(form, Extension) and form.family in self._by_name:
                execute = self._executor(form.family, engine)
                if execute is not None:
                    lent = Lent(engine, self._cache(form.family, engine.id))
                    found[form.family] = partial(_guarded, execute, lent, form.family)
        return found

    def _executor(self, family: str, engine: Engine) -> Callable[..., Any] | None:
        """What runs the family on an engine: its executor there, or a call of what its provider makes."""
        found = _provider(self._by_name[family][1], family, engine)
        if found is None or not found[1]:
            return found and found[0]
        with self._held.lock:
            answers = self._answers.setdefault((family, engine.id), Specializer(family))
        return partial(_provided, found[0], answers)

    def _cache(self, family: str, engine: str) -> FamilyCache:
        with self._held.lock:
            return self._caches.setdefault((family, engine), FamilyCache())

    def clear_caches(self) -> None:
        """Empty the caches of every family."""
        for cache in list(self._caches.values()):
            cache.clear()
        for answers in list(self._answers.values()):
            answers.clear()


def _provider(module: ExtensionModule, family: str, engine: Engine) -> tuple[Callable[..., Any], bool] | None:
    """What a module has for a family on an engine, and whether that makes executors rather than being one."""
    for where in (engine.id, engine.hardware):
        for table in (module.executors, module.providers):
            if (family, where) in table:
                return table[family, where], table is module.providers
    return None


def _provided(
    provide: Callable[..., Any], answers: Specializer[Executor], lent: Lent, *arrays: Any, **params: Any
) -> Any:
    """A call of the executor that the provider has made for operands like these."""
    signatures = [Signature.of(x, lent.engine.hardware, lent.engine.id) for x in arrays]

    def asked(known: tuple[Known, ...]) -> Executor | Need:
        answer: Executor | Need = provide(lent, known, **params)
        if not isinstance(answer, Need) and not callable(answer):
            raise ProviderContractError(
                f"{answers.name}: the provider gave a {type(answer).__name__}; an executor or a Need is needed"
            )
        return answer

    execute = answers.find(tuple((k, static_key(v)) for k, v in sorted(params.items())), signatures, asked)
    return execute(*arrays, **params)


def _guarded(execute: Callable[..., Any], lent: Lent, family: str, *arrays: Any, **params: Any) -> Any:
    """An executor's call; EngineFailure breaks the engine."""
    try:
        return execute(lent, *arrays, **params)
    except EngineFailure as failure:
        lent.engine.broken = f"{family}: {failure}"
        raise BrokenEngineError(f"run: engine {lent.engine.id} broke under {family}: {failure}") from failure
