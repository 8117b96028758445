#!/usr/bin/env bash
# zstandard: of a log that was appended to, decompress() gives the first part.
# One would expect: all of a valid .zst file, as open() of the same package gives it and
#   gzip.decompress of a .gz file, or an error for what follows.
# What happens: every append makes a frame of its own. decompress() and decompressobj() stop
#   behind the first and say nothing of the rest; open() and stream_reader() read all.
# Versions: zstandard 0.25.0, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages zstandard==0.25.0
program <<'PY'
import gzip
import io

import zstandard

lines = [f'episode {i}\n'.encode() for i in range(3)]
whole = b''.join(zstandard.compress(line) for line in lines)
other = b''.join(gzip.compress(line) for line in lines)
reader = zstandard.ZstdDecompressor()
for name, found in (
  ('gzip.decompress', gzip.decompress(other)),
  ('decompress', zstandard.decompress(whole)),
  ('decompressobj', reader.decompressobj().decompress(whole)),
  ('open', zstandard.open(io.BytesIO(whole), 'rb').read()),
  ('stream_reader', reader.stream_reader(io.BytesIO(whole)).read()),
):
  print(f'{name}: {found.count(b"episode")} of 3 lines')
PY
recorded <<'SEEN'
gzip.decompress: 3 of 3 lines
decompress: 1 of 3 lines
decompressobj: 1 of 3 lines
open: 3 of 3 lines
stream_reader: 3 of 3 lines
SEEN
