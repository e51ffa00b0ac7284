"""What to say of a name that ``jax`` has and tenferro has not."""

from __future__ import annotations

_INSTEAD = {
    "config": "64 bits need no flag; docs/api.md lists the settings",
    "clear_caches": "tenferro.default_runtime().clear_caches() serves",
    "closure_convert": "a rule of tenferro.custom_vjp takes what it reads as an argument",
    "custom_gradient": "tenferro.custom_vjp serves",
    "debug_infs": "tenferro.debug.nans() finds what a NaN is born of",
    "debug_nans": "tenferro.debug.nans() serves",
    "default_backend": "tenferro.list_engines() serves",
    "device_count": "tenferro.list_engines() serves",
    "devices": "tenferro.list_engines() serves",
    "dtypes": "numpy.result_type and numpy.issubdtype serve",
    "experimental": "tenferro.shard_map, tenferro.io_callback and tenferro.check are there without it",
    "export": "the disk cache keeps programs for later processes",
    "image": "tenferro.lax and NumPy's functions serve",
    "local_device_count": "tenferro.list_engines() serves",
    "local_devices": "tenferro.list_engines() serves",
    "make_jaxpr": "tenferro.make_program(f)(*args) serves",
    "make_mesh": "tenferro.Mesh(engines, axis_names) serves",
    "monitoring": "tenferro.profile() serves",
    "named_call": "programs show your lines",
    "named_scope": "programs show your lines",
    "ops": "x.at[segments].add(values), min and max serve",
    "pmap": "tenferro.shard_map serves",
    "profiler": "tenferro.profile() serves",
    "scipy": "tenferro.special and tenferro.linalg serve",
    "sharding": "tenferro.Mesh and tenferro.PartitionSpec serve",
    "typing": "numpy.typing.ArrayLike serves",
}
"""A name of ``jax`` → what serves here."""


def near(name: str) -> str:
    """What an error text adds about a name that is missing; nothing where JAX has no such name either."""
    return f"; {_INSTEAD[name]}" if name in _INSTEAD else ""
