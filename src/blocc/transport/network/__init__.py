"""Transport networks as data: nodes, candidate links, markets, and the files they come from."""
