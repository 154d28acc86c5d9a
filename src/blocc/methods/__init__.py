"""Other published methods for bilevel problems with constraints, under the same front door as blocc's own.

A method of your own extends :class:`Iteration` (one step, repeated), :class:`Sampled` (a step on a mini-batch of the
data) or :class:`Method`; :func:`steps_of` shows its
states one by one, to compare them with a transcription of its paper.
"""

from blocc.methods.base import Demand, Method, Size
from blocc.methods.loop import Iteration, steps_of
from blocc.methods.sampled import Sampled

__all__ = ["Demand", "Iteration", "Method", "Sampled", "Size", "steps_of"]
