"""Guarantees of the theorems of the Gluon paper: iterations, bounds, radii.

L0 and L1 are numbers, or lists with one entry per layer; `initial_gap` is f(X_0) - inf f.

>>> import gluon
>>> guarantee = gluon.theory.theorem1(l0=[1.0, 2.0], l1=[0.5, 0.5], initial_gap=3.0)
>>> guarantee.iterations(0.1)
1830.0
>>> guarantee.radii
['smooth(1,0.5)', 'smooth(2,0.5)']
"""

from ._core import theory as _theory

# theory.pyi lists the names with their types.
__all__ = [name for name in dir(_theory) if not name.startswith("_")]
globals().update({name: getattr(_theory, name) for name in __all__})
