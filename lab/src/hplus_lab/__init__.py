"""hplus-lab: the laboratory of the paper. Protocols, tables, plots, audit, baselines.

protocol.py, protocols/   what is measured, frozen in TOML
experiment.py             a set under a protocol: candidates, units, rankers
rankers.py, line.py       how candidates are scored and at what cost; one line of a table
kinds/                    the lines of each kind of protocol, one module a kind
measure.py, cell.py       lines of one protocol, system and set, kept in a cache (cache.py)
clock.py                  their times
summary.py, results.py    all figures of a table, as files
report.py, plots.py       the same for people
paper.py                  the paper's figures
audit/, baselines/        units against people's marks; other systems
"""
