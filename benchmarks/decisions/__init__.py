"""How good the decisions are: the real Router before engine models, in simulated time."""
