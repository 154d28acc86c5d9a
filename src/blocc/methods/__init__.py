"""Other published methods for bilevel problems with constraints, under the same front door as blocc's own.

A method of your own extends :class:`Iteration` (one step, repeated) or :class:`Method`.
"""

from blocc.methods.base import Demand, Method, Size
from blocc.methods.loop import Iteration

__all__ = ["Demand", "Iteration", "Method", "Size"]
