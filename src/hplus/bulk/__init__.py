"""A corpus encoded in shards: by one machine or by many, into files that an index reads."""
