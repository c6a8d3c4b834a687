"""`python -m rackassign`."""

from rackassign.cli import main

main()
