"""Transformations: operations of a trace in, operations of the same trace out.

``recording`` cuts out what a function did; ``linear`` differentiates (a tape of tangents, then replayed or transposed);
``batch`` maps over a leading axis; ``functions`` applies them to Python functions on pytrees.
"""
