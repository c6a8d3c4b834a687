"""`make matrix`: a fixed list of tests with each supported version of Python and of the client libraries."""
