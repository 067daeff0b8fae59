#!/bin/sh
# Copy an index while it is served and changed: docs/deploy/backup.sh notes.hplus copy.hplus
#
# The note of what is confirmed goes first, then the catalogue, by SQLite's own back-up, then the
# segments, which never change once written. A compaction in between removes segments that the copied
# catalogue still names; then the copy is made again.
set -eu
index=$1 copy=$2
[ ! -e "$copy" ] || { echo "$copy exists already" >&2; exit 2; }
for attempt in 1 2 3 4 5; do
  rm -rf "$copy.part"
  mkdir -p "$copy.part/segments"
  cp "$index/confirmed" "$copy.part/"
  python3 - "$index/catalogue.sqlite" "$copy.part/catalogue.sqlite" << 'END'
import sqlite3, sys
from contextlib import closing
with closing(sqlite3.connect(sys.argv[1])) as source, closing(sqlite3.connect(sys.argv[2])) as copy:
    source.backup(copy)
END
  cp "$index"/segments/* "$copy.part/segments/" 2> /dev/null || true
  if hplus verify "$copy.part" > /dev/null 2> "$copy.why"; then
    mv "$copy.part" "$copy"
    rm -f "$copy.why"
    echo "$copy: verified"
    exit 0
  fi
done
cat "$copy.why" >&2
exit 1
