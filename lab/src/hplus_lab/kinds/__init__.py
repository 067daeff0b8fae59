"""The kinds of protocols, one module each; a new one is a module here and a line below."""

from hplus_lab.kinds import (
    ablations,
    budgets,
    exact_count,
    full_corpus,
    fusion,
    own_dense,
    pool_sizes,
    projection,
    shared_pool,
    views,
    widths,
)
from hplus_lab.kinds.kind import Kind

KINDS: dict[str, Kind] = {
    "views": views.KIND,
    "widths": widths.KIND,
    "pool-sizes": pool_sizes.KIND,
    "own-dense": own_dense.KIND,
    "shared-pool": shared_pool.KIND,
    "full-corpus": full_corpus.KIND,
    "exact-count": exact_count.KIND,
    "ablations": ablations.KIND,
    "projection": projection.KIND,
    "fusion": fusion.KIND,
    "budgets": budgets.KIND,
}
