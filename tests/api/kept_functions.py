"""Texts of modules with a function ``f`` and calls of it, for tests of the cache of traces: what can be kept."""

from __future__ import annotations

KEPT: dict[str, str] = {
    "elementwise": """
def f(x, y):
    return np.tanh(x) * 0.5 + y / 3 - np.float32(2)
calls = [(np.arange(6.0), np.ones(6)), (np.arange(9.0), np.ones(9))]
""",
    "softmax": """
def f(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
calls = [(np.arange(12.0).reshape(3, 4),), (np.arange(10.0).reshape(5, 2),)]
""",
    "sizes_as_branches": """
def f(x):
    if x.shape[0] < 3:
        return x + x.shape[0]
    return (x[:-2] + x[1:-1] + x[2:]) / x.shape[0]
calls = [(np.arange(10.0),), (np.arange(7.0),), (np.arange(2.0),)]
programs = 2
""",
    "ints_and_floats": """
def f(x, n, k=2.0, *, c=1j):
    out = np.zeros(x.shape[0] + n)
    out[: x.shape[0]] = x * k
    return out + c, n * 2, n // 3
calls = [(np.ones(3), 4), (np.ones(5), 7, 0.1)]
programs = 2
""",
    "static_values": """
class Mode(Enum):
    UP = "up"
    DOWN = "down"
def f(x, up, how, mode, dtype):
    y = x + 1 if up else x - 1
    return y.astype(dtype) if how == "cast" else y, how, mode, dtype
calls = [(np.ones(3), True, "cast", Mode.UP, np.dtype("f4")), (np.ones(3), False, "no", Mode.DOWN, np.float16)]
programs = 2
""",
    "many_outputs": """
def f(x):
    y = x * 2
    z = y[1:]
    return {"y": y, "again": y, "view": z.T, "x": x, "size": x.shape[0], "none": None, "text": "t", 7: (y.sum(), [1.5])}
calls = [(np.arange(12.0).reshape(3, 4),)]
""",
    "pytrees": """
class Pair(NamedTuple):
    a: object
    b: object
@dataclass
class Record:
    w: object
    scale: object
    kind: str = field(default="k", metadata={"static": True})
def f(p, r, d):
    made = defaultdict(list, {"m": [p.a + r.w * r.scale]})
    return Record(p.b - 1, p.a.shape[0], r.kind), Pair(d["x"] * 2, OrderedDict(q=d["n"])), made
calls = [(Pair(np.ones(3), np.ones(2)), Record(np.ones(3), 2.5), {"x": np.ones(1), "n": 4})]
""",
    "captured": """
W = np.arange(3.0)
rate = 0.5
table = {"a": [np.ones(3), 4], "b": (1, 2.5, "text")}
def helper(x, k=W):
    return x * k + table["a"][0] * table["b"][1]
def f(x, bias=np.full(3, 2.0)):
    return helper(x) * rate + bias + len(table)
calls = [(np.ones(3),)]
""",
    "closure": """
def make(w, s):
    def inner(x):
        return x @ w * s
    def f(x):
        return inner(x) + s
    return f
f = make(np.arange(6.0).reshape(2, 3), -0.0)
calls = [(np.ones((4, 2)),)]
""",
    "contents": """
weights = np.array([1.0, 2.0, 3.0])
names = np.array(["a", "bc"])
def f(x):
    if weights[0] > 5 or names[1] != "bc":
        return -x
    return x[: int(weights[1])] * weights.sum()
calls = [(np.ones(3),)]
""",
    "an_object": """
class Layer:
    def __init__(self, n):
        self.w, self.steps, self.last = np.ones((n, n)), 3, None
    @property
    def scale(self):
        return self.steps * 2
    def act(self, x):
        return np.tanh(x)
class Model:
    rate = 0.25
    def __init__(self):
        self.layers = [Layer(3), Layer(3)]
    def __call__(self, x):
        for layer in self.layers:
            x = layer.act(x @ layer.w) * layer.scale + getattr(layer, "bias", self.rate)
        return x
model = Model()
def f(x):
    return model(x)
calls = [(np.ones((2, 3)),)]
""",
    "bound_method": """
class Box:
    def __init__(self):
        self.w = np.arange(3.0)
    def apply(self, x):
        return self.w * x
f = Box().apply
calls = [(np.ones(3),)]
""",
    "partial": """
def g(a, x, *, b):
    return a * x + b
f = functools.partial(g, np.arange(3.0), b=2.5)
calls = [(np.ones(3),)]
""",
    "callable_object": """
class Scale:
    def __init__(self):
        self.k = 3.0
    def __call__(self, x):
        return self.k * x
f = Scale()
calls = [(np.ones(3),)]
""",
    "jitted_helper": """
@tn.jit
def g(x):
    return np.exp(x) * scale
scale = 1.5
def f(x):
    return g(x) + g(2 * x)
calls = [(np.ones(3),)]
""",
    "known_cells": """
def f(x):
    grid = np.linspace(0, 1, 5)
    weights = np.array([[1, 2], [3, 4]], dtype=np.int16)
    return np.add.outer(x, grid), weights * x[0], np.eye(3)
calls = [(np.arange(4.0),)]
""",
    "seams": """
def f(x):
    kept = x[x > 1]
    return np.sort(x)[::-1], kept * 2, kept.shape[0], np.median(x), np.bincount(x.astype(np.int64))
calls = [(np.array([3.0, 1.0, 2.0]),), (np.array([0.0, 1.0, 5.0, 4.0]),)]
""",
    "many_numbers": """
coefficients = [k / 7 for k in range(100)]
def f(x):
    total = x * 0
    for c in coefficients[::9]:
        total = total * x + c
    return total
calls = [(np.ones(3),)]
""",
    "special_numbers": """
c = complex(float("nan"), -0.0)
limits = (float("inf"), -float("inf"), float("nan"), -0.0)
def f(x):
    y = np.where(x > 0, limits[0], limits[2])
    return y, x * limits[3], x + c, np.float16(3) * x.astype(np.float16), x == 2**53 + 1
calls = [(np.array([-1.0, 2.0]),)]
""",
    "array_of_this_package": """
W = tn.asarray(np.arange(3.0))
def f(x):
    return W * x, x.sum()
calls = [(np.ones(3),), (tn.asarray(np.ones(3)),)]
""",
    "indices_and_writes": """
def f(x, i):
    y = x.copy()
    y[i] = 5
    y[1:3] += x[0]
    return y, x[i], np.take(x, i, axis=0)
calls = [(np.arange(6.0), np.array([1, 4]))]
""",
    "missing_names": """
def f(x):
    try:
        scale = gain
    except NameError:
        scale = 2.0
    return x * scale + (1 if hasattr(np, "no_such") else 3)
calls = [(np.ones(2),)]
""",
    "a_class_made_inside": """
class Acc:
    def __init__(self, x):
        self.total = x
    def add(self, y):
        self.total = self.total + y
        return self
def f(x):
    return Acc(x).add(x * 2).add(1.0).total
calls = [(np.ones(3),)]
""",
    "gradient": """
def loss(w, x):
    return (np.tanh(x @ w) ** 2).sum()
f = tn.grad(loss)
calls = [(np.arange(3.0), np.arange(12.0).reshape(4, 3))]
""",
    "gradient_of_a_helper": """
def loss(w, x):
    return ((x @ w) ** 2).sum()
slope = tn.value_and_grad(loss)
def f(w, x):
    value, g = slope(w, x)
    return w - 0.1 * g, value, tn.vmap(lambda r: r / np.sqrt((r * r).sum()))(x)
calls = [(np.arange(3.0), np.arange(12.0).reshape(4, 3) + 1)]
""",
    "functions_made_inside": """
scale = 3.0
def loss(w, x, k):
    return ((x @ w) ** 2).sum() * k
def f(w, x):
    k = scale * 2
    kinds = {"a": 1.0}
    inner = lambda v: loss(v, x, k) + kinds["a"] * (v * v).sum()
    def outer(v):
        return inner(v) * 2
    return tn.grad(outer)(w), tn.checkpoint(outer)(w), tn.lax.stop_gradient(w) * k
calls = [(np.arange(3.0), np.arange(12.0).reshape(4, 3) + 1)]
""",
    "loops": """
def f(x):
    last, all = tn.lax.scan(lambda c, a: (c + a, c * 2), 0.0 * x[0], x)
    n, y = tn.lax.while_loop(lambda s: s[0] < 10.0, lambda s: (s[0] + s[1].sum(), s[1] * 1.5), (x.sum() * 0, x[0]))
    return last, all, n, y, tn.lax.cond(x.sum() > 0, lambda a: a * 2, lambda a: a - 1, x)
calls = [(np.arange(12.0).reshape(4, 3),)]
""",
}
"""Modules whose calls are served by what was kept; ``programs`` says how many they make."""

CHANGES: dict[str, tuple[str, str, str]] = {
    "body": ("def f(x):\n    return x + 1\n", "x + 1", "x + 2"),
    "constant_in_a_text": ("def f(x):\n    return x * (3 if 'ab' in ('ab', 'c') else 4)\n", "'ab' in", "'d' in"),
    "helper": ("def g(x):\n    return x + 1\ndef f(x):\n    return g(x)\n", "x + 1", "x - 1"),
    "helper_of_a_helper": (
        "def h(x):\n    return x + 1\ndef g(x):\n    return h(x)\ndef f(x):\n    return g(x)\n", "x + 1", "x - 1"
    ),
    "value": ("rate = 0.5\ndef f(x):\n    return x * rate\n", "0.5", "0.25"),
    "sign_of_zero": ("rate = 0.0\ndef f(x):\n    return np.copysign(x, rate)\n", "0.0", "-0.0"),
    "kind_of_number": ("rate = 2\ndef f(x):\n    return x.astype(np.int32) * rate\n", "rate = 2", "rate = 2.0"),
    "dtype": ("W = np.ones(3, 'f8')\ndef f(x):\n    return x.astype('f4') * W\n", "'f8'", "'f4'"),
    "rank": ("W = np.ones(3)\ndef f(x):\n    return x * W\n", "np.ones(3)", "np.ones((2, 3))"),
    "size": ("W = np.ones(3)\ndef f(x):\n    return x * W\n", "np.ones(3)", "np.ones(1)"),
    "contents": ("W = np.ones(3)\ndef f(x):\n    return x if W[0] == 1 else -x\n", "np.ones(3)", "np.zeros(3)"),
    "default": ("def f(x, k=2):\n    return x * k + (k == 2)\n", "k=2)", "k=3)"),
    "keyword_default": ("def f(x, *, up=True):\n    return x + 1 if up else x\n", "up=True", "up=False"),
    "helper_default": ("def g(x, k=2.0):\n    return x * k\ndef f(x):\n    return g(x)\n", "k=2.0", "k=4.0"),
    "cell": ("def make(k):\n    def f(x):\n        return x * k\n    return f\nf = make(2.0)\n", "(2.0)", "(3.0)"),
    "method": (
        "class A:\n    def g(self, x):\n        return x + 1\na = A()\ndef f(x):\n    return a.g(x)\n", "x + 1", "x + 2"
    ),
    "property": (
        "class A:\n    @property\n    def g(self):\n        return 1.0\na = A()\ndef f(x):\n    return x + a.g\n",
        "1.0", "2.0",
    ),
    "member_of_a_class": ("class A:\n    k = 1.0\na = A()\ndef f(x):\n    return x + a.k\n", "k = 1.0", "k = 2.0"),
    "attribute": (
        "class A:\n    def __init__(self):\n        self.k = 1.0\na = A()\ndef f(x):\n    return x + a.k\n",
        "self.k = 1.0", "self.k = 2.0",
    ),
    "attribute_that_appears": (
        "class A:\n    pass\na = A()\ndef f(x):\n    return x + getattr(a, 'k', 1.0)\n", "a = A()", "a = A(); a.k = 5.0"
    ),
    "key_that_appears": ("t = {}\ndef f(x):\n    return x + t.get('k', 1.0)\n", "t = {}", "t = {'k': 3.0}"),
    "length": ("t = [1.0]\ndef f(x):\n    return x + sum(t)\n", "[1.0]", "[1.0, 2.0]"),
    "name_of_pythons_own": ("def f(x):\n    return abs(x - 3)\n", "def f", "abs = np.exp\ndef f"),
    "imported_function": ("from math import floor as r\ndef f(x):\n    return x * r(1.5)\n", "floor", "ceil"),
    "imported_module": ("import cmath as m\ndef f(x):\n    return x * m.pi * len(m.__name__)\n", "cmath", "math"),
    "imported_class": (
        "from collections import OrderedDict as D\ndef f(x):\n    return x + len(D.__name__)\n",
        "OrderedDict", "Counter",
    ),
    "ufunc": ("g = np.sin\ndef f(x):\n    return g(x)\n", "np.sin", "np.cos"),
    "defaults_of_a_dataclass": (
        "@dataclass(slots=True)\nclass P:\n    k: float = 1.0\ndef f(x):\n    return x * P().k\n", "= 1.0", "= 2.0"
    ),
    "factory_of_a_dataclass": (
        "@dataclass\nclass P:\n    k: float = field(default_factory=lambda: 1.0)\ndef f(x):\n    return x * P().k\n",
        ": 1.0)", ": 2.0)",
    ),
    "which_argument_of_a_gradient": (
        "def loss(x, y):\n    return (x * x * y).sum()\ng = tn.grad(loss, argnums=0)\n"
        "def f(x):\n    return g(x, x + 1)\n",
        "argnums=0", "argnums=1",
    ),
    "function_under_a_gradient": (
        "def loss(x):\n    return (x * x).sum()\ng = tn.grad(loss)\ndef f(x):\n    return g(x)\n", "x * x", "x * x * x"
    ),
    "number_in_a_function_made_inside": (
        "k = 2.0\ndef f(x):\n    n = k + 1\n    return tn.grad(lambda v: (v * v).sum() * n)(x)\n", "k = 2.0", "k = 3.0"
    ),
    "gradient_itself": ("def loss(x):\n    return (x * x).sum()\nf = tn.grad(loss)\n", "x * x", "x * x * x"),
    "settings_of_lanes": (
        "def row(x):\n    return x / x.sum()\ng = tn.vmap(row, in_axes=0)\n"
        "def f(x):\n    return g(x[None] * x[:, None] + x * np.arange(3))\n",
        "in_axes=0", "in_axes=1",
    ),
    "body_of_a_loop": (
        "def step(c, a):\n    return c + a, c\ndef f(x):\n    return tn.lax.scan(step, 0.0, x)[0]\n", "c + a", "c - a"
    ),
    "enumeration": (
        "class M(Enum):\n    A = 1.0\ndef f(x):\n    return x * M.A.value\n", "A = 1.0", "A = 2.0"
    ),
    "function_in_a_list": (
        "def g(x):\n    return x + 1\ndef h(x):\n    return x + 2\nt = [g]\ndef f(x):\n    return t[0](x)\n",
        "[g]", "[h]",
    ),
    "jitted_helper": ("@tn.jit\ndef g(x):\n    return x + 1\ndef f(x):\n    return g(x)\n", "x + 1", "x + 2"),
    "aliased_arrays": (
        "A = np.ones(3)\nB = A\ndef f(x):\n    return x * A + B\n", "B = A", "B = np.full(3, 4.0)"
    ),
}  # fmt: skip
"""A module's text, and an edit of it that changes what ``f(np.ones(3))`` gives, or its type."""

REFUSED: dict[str, tuple[str, str]] = {
    "environment": ("import os\ndef f(x):\n    return x * float(os.environ.get('NO_SUCH', 2))\n", "it uses os"),
    "clock": ("from time import time\ndef f(x):\n    return x + 0 * (time() > 0)\n", "it uses time"),
    "file": ("def f(x):\n    with open('/dev/null') as file:\n        return x + len(file.read())\n", "it calls open"),
    "numpys_files": ("def f(x):\n    return x if True else np.load('x.npy')\n", "f names load"),
    "generator": ("g = np.random.default_rng(0)\ndef f(x):\n    return x if g is not None else x\n", "g draws"),
    "another_package": (
        "import hypothesis\ndef f(x):\n    return x + len(hypothesis.__name__)\n",
        "it uses hypothesis",
    ),
    "pattern": (
        "import re\np = re.compile('a')\ndef f(x):\n    return x + bool(p.match('a'))\n",
        "what p, a re.Pattern",
    ),
    "remembering": (
        "@functools.lru_cache\ndef g(n):\n    return np.ones(n)\ndef f(x):\n    return x + g(3)\n",
        "it calls a function that remembers its results",
    ),
    "methods_of_an_argument": (
        "@dataclass\nclass P:\n    w: object\n    def g(self):\n        return self.w * 2\n"
        "def f(x):\n    return P(x).g()\ncall = lambda x: (P(x),)\ndef f(p):\n    return p.g()\n",
        "P.g is a member of a class that is not followed",
    ),
    "registered_class": (
        "class R:\n    def __init__(self, a):\n        self.a = a\n"
        "tn.tree.register_pytree_node(R, lambda r: ((r.a,), None), lambda m, c: R(*c))\n"
        "call = lambda x: (R(x),)\ndef f(r):\n    return r.a + 1\n",
        "class R is opened and made by functions of its own",
    ),
    "static_function": ("call = lambda x: (x, np.tanh)\ndef f(x, g):\n    return g(x)\n", "a numpy.ufunc has no exact"),
    "local_class": (
        "def make():\n    class A:\n        k = 2.0\n    return A()\na = make()\ndef f(x):\n    return x * a.k\n",
        "is not found by its name",
    ),
    "evaluated": ("def f(x):\n    return eval('x + 1')\n", "it calls eval"),
    "methods_of_an_enumeration": (
        "class M(Enum):\n    A = 1\n    def g(self):\n        return 2.0\ndef f(x):\n    return x * M.A.g()\n",
        "M.g is a member of a class that is not followed",
    ),
    "placed": ("def f(x):\n    with tn.on('cpu:0'):\n        return x + 1\n", "operations are put on engines"),
    "large_constant": ("def f(x):\n    return x[0] * np.arange(300_000.0)\n", "arrays that the trace has made are"),
}
"""Modules whose traces are not kept, with the reason."""
