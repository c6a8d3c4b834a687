"""Pages of the reference and the list of stable names, made from the code."""
