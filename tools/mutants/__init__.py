"""`make mutants`: small changes to the core, each of which a unit test must find."""
