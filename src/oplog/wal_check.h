// Whether a write-ahead file of SQLite was damaged behind what a crash can have torn.
//
// SQLite reads such a file up to the first frame that does not check and takes the rest for a write
// that was cut: a bit that flips in its middle takes every later commit along without a word. But
// a commit is synced before the next one begins. So if whole commits lie behind the frame that does
// not check, or behind a header that does not, it was damaged since. Of the last one or two commits
// nobody can tell.
//
// Pure. The format is sqlite.org/fileformat2.html#the_write_ahead_log.
#pragma once

#include <string_view>

#include "base/status.h"

namespace mooncake::oplog {

// CORRUPT, naming the byte where it begins. OK: also for what is no write-ahead file.
Status CheckWriteAheadFile(std::string_view file);

}  // namespace mooncake::oplog
