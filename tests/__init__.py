"""A package, since the suite of the CS336 assignment imports `.adapters` beside its tests."""
