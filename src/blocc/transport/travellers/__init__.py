"""The lower level: travellers who choose a mode and a route, and its interior-point method."""
