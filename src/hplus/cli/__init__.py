"""`hplus VERB …`: a thin layer over the library, one file per command.

Exit codes: 0 ok, 1 nothing found, 2 bad usage or data, 3 damaged index.
"""

from __future__ import annotations

import os
import sys

import typer

from hplus.cli import demo, encode, info, score, segment, terms
from hplus.errors import HPlusError

app = typer.Typer(
    name="hplus",
    help="Retrieval by phrases: cut texts into units, weigh them, score and explain.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("segment", epilog=segment.EXAMPLE)(segment.segment)
app.command("score", epilog=score.EXAMPLE)(score.score)
app.command("encode", epilog=encode.EXAMPLE)(encode.encode)
app.command("info", epilog=info.EXAMPLE)(info.info)
app.command("demo", epilog=demo.EXAMPLE)(demo.demo)
app.add_typer(terms.app, name="terms")


def main() -> None:
    """Run; every mistake is one sentence on standard error."""
    try:
        app()
    except HPlusError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            # The reader (`head`) has enough; Python must not complain again while it closes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
