"""Other published methods for bilevel problems with constraints, under the same front door as blocc's own."""
