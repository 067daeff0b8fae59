"""`hplus VERB …`: a thin layer over the library, one file per command.

Exit codes: 0 ok, 1 nothing found, 2 bad usage or data, 3 damaged index.
"""

from __future__ import annotations

import io
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hplus import __version__
from hplus.cli import (
    budget,
    bulk,
    care,
    convert,
    demo,
    documents,
    encode,
    engines,
    evaluate,
    groups,
    index,
    info,
    mcp,
    score,
    search,
    segment,
    serve,
    stages,
    teach,
    terms,
    train,
)
from hplus.errors import HPlusError, IndexDamagedError
from hplus.terminal import streams, visible


@contextmanager
def _visible_mistakes() -> Iterator[None]:
    """Typer prints its errors itself, and quotes what was typed: file names, for instance."""
    try:
        yield
    except Exception as error:
        if isinstance(getattr(error, "message", None), str):
            error.message = visible(error.message)  # type: ignore[attr-defined]
        raise


# What the help calls the value of an option, instead of its Python type.
VALUES = {"<bool>": "", "<int>": "N", "<int range>": "N", "<float>": "NUMBER", "<str>": "TEXT"}
VALUES |= {"<float range>": "NUMBER", "<path>": "PATH"}


def _name_values(command: Any, ctx: Any) -> None:
    """Options of a command, and of those below it, say "N" in the help where Typer says "<int
    range>", and nothing where they take no value."""
    for option in command.get_params(ctx):
        if option.param_type_name == "option" and option.metavar is None:
            shown = option.display_type(ctx) if hasattr(option, "display_type") else ""
            option.metavar = VALUES.get(shown)
    for below in getattr(command, "commands", {}).values():
        _name_values(below, ctx)


class Commands(TyperGroup):
    """All commands, whose errors about what was typed are safe to print."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _visible_mistakes():
            return super().make_context(*arguments, **options)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _name_values(command, ctx)
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _name_values(self, ctx)
        super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        with _visible_mistakes():
            return super().invoke(ctx)


app = typer.Typer(
    name="hplus",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("segment", epilog=segment.EXAMPLE)(segment.segment)
app.command("score", epilog=score.EXAMPLE)(score.score)
app.command("index", epilog=index.EXAMPLE)(index.index)
app.command("search", epilog=search.EXAMPLE)(search.search)
app.command("more-like", epilog=search.MORE_LIKE_EXAMPLE)(search.more_like)
app.command("get", epilog=documents.GET_EXAMPLE)(documents.get)
app.command("export", epilog=documents.EXPORT_EXAMPLE)(documents.export)
app.command("delete", epilog=documents.DELETE_EXAMPLE)(documents.delete)
app.command("compact", epilog=care.COMPACT_EXAMPLE)(care.compact)
app.command("verify", epilog=care.VERIFY_EXAMPLE)(care.verify)
app.command("stats", epilog=care.STATS_EXAMPLE)(care.stats)
app.command("push", epilog=engines.PUSH_EXAMPLE)(engines.push)
app.command("pull", epilog=engines.PULL_EXAMPLE)(engines.pull)
app.command("diff", epilog=engines.DIFF_EXAMPLE)(engines.diff)
app.command("encode", epilog=encode.EXAMPLE)(encode.encode)
app.command("bulk", epilog=bulk.EXAMPLE)(bulk.bulk)
app.command("convert", epilog=convert.EXAMPLE)(convert.convert)
app.command("info", epilog=info.EXAMPLE)(info.info)
app.command("serve", epilog=serve.EXAMPLE)(serve.serve)
app.command("mcp", epilog=mcp.EXAMPLE)(mcp.mcp)
app.command("demo", epilog=demo.EXAMPLE)(demo.demo)
app.add_typer(terms.app, name="terms")
teach.app.command("negatives", epilog=groups.NEGATIVES_EXAMPLE)(groups.negatives)
teach.app.command("scores", epilog=groups.SCORES_EXAMPLE)(groups.scores)
app.add_typer(teach.app, name="teach")
train.app.command("stage1", epilog=stages.EXAMPLE1)(stages.stage1)
train.app.command("stage2", epilog=stages.EXAMPLE2)(stages.stage2)
app.add_typer(train.app, name="train")
evaluate.app.command("budget", epilog=budget.EXAMPLE)(budget.budget)
app.add_typer(evaluate.app, name="evaluate")


def _version(asked: bool) -> None:
    if asked:
        print(f"hplus {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_version, help="Show the version."),
    ] = False,
) -> None:
    """Retrieval by phrases: find units in texts, weigh them, search, and explain scores."""
    del version


def alone(arguments: list[str]) -> typer.Typer:
    """The app with no command but the one that is called, if it is a plain one: Typer builds every
    command to run one of them, a twentieth of the time of a search from the shell."""
    called = [command for command in app.registered_commands if command.name in arguments[:1]]
    if not called:
        return app
    own = copy(app)
    own.registered_commands, own.registered_groups = called, []
    return own


def main() -> None:
    """The command `hplus`."""
    run_app(alone(sys.argv[1:]))


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """One sentence, without the file and line of our code."""
    print(f"warning: {message}", file=sys.stderr)


def run_app(app: typer.Typer) -> None:
    """Run; a mistake in the data is one sentence on standard error."""
    if hasattr(signal, "SIGPIPE"):
        # A reader that has enough (`head`) ends us quietly, as it ends other commands.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    warnings.showwarning = _show_warning
    with streams():
        try:
            app()
        except (HPlusError, OSError) as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(3 if isinstance(error, IndexDamagedError) else 2)
