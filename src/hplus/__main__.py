"""`python -m hplus`."""

from hplus.cli import main

main()
