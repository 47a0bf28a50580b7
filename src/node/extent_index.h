// Where extents begin in a durable slab: a file beside it, so that a later process finds them. They
// cannot be found in the slab itself, where a payload may look like a header.
//
// One bit for every place where an extent may begin (64 bytes apart), as little-endian words of 64.
// A bit is set after the header at its place was written, and cleared after that header's object_id
// was set to 0; so a process that was killed at any moment leaves a set bit only where a header is.
// (After a crash of the machine pages may be of any age: see slab_table.h.)
// Threads: the caller sees to it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "env/mapping.h"
#include "env/memory_file.h"

namespace mooncake::node {

class ExtentIndex {
 public:
  // An empty one for a slab of `slab_bytes`; what is at `path` goes.
  static Result<ExtentIndex> Create(const std::string& path, uint64_t slab_bytes);
  // CORRUPT: of another size than such a slab's is.
  static Result<ExtentIndex> Open(const std::string& path, uint64_t slab_bytes);

  void Set(uint64_t offset);
  void Clear(uint64_t offset);
  // Every place with its bit set, in order.
  void ForEach(const std::function<void(uint64_t offset)>& visit) const;
  Status Sync() const { return file_.Sync(); }

 private:
  ExtentIndex(env::MemoryFile file, env::Mapping words)
      : file_(std::move(file)), words_(std::move(words)) {}
  static Result<ExtentIndex> Map(env::MemoryFile file);
  uint64_t* word(uint64_t offset) const;

  env::MemoryFile file_;
  env::Mapping words_;
};

}  // namespace mooncake::node
