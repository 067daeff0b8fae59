"""`hplus-lab VERB …`: every table of the paper on any checkpoint, one file per command."""

from __future__ import annotations

import typer

from hplus.cli import Commands, run_app
from hplus_lab.cli import audit, baselines, measure, run, units

app = typer.Typer(
    name="hplus-lab",
    cls=Commands,
    help="The laboratory of the paper: protocols, tables, plots, audit.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("protocol", epilog=run.PROTOCOL_EXAMPLE)(run.protocol)
app.command("measure", epilog=measure.EXAMPLE)(measure.measure)
app.command("run", epilog=run.RUN_EXAMPLE)(run.run)
app.command("report", epilog=run.REPORT_EXAMPLE)(run.report)
app.command("plot", epilog=run.PLOT_EXAMPLE)(run.plot)
app.command("audit", epilog=audit.EXAMPLE)(audit.audit)
app.command("units", epilog=units.EXAMPLE)(units.units)
app.command("baselines", epilog=baselines.EXAMPLE)(baselines.baselines)


def main() -> None:
    """Run; a mistake in the data is one sentence on standard error."""
    run_app(app)
