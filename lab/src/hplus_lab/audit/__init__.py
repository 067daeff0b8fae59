"""The boundary audit: do units end where people end them?

    items -> reference of each text -> tallies of a construction's units -> comparison -> report

`compare` does all but the report; docs/audit-format.md describes files and measures.
"""

from hplus_lab.audit.compare import Audit, compare
from hplus_lab.audit.constructions import units_of
from hplus_lab.audit.items import Item, Marks, read_items

__all__ = ["Audit", "Item", "Marks", "compare", "read_items", "units_of"]
