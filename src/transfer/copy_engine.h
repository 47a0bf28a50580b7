// The strided copy engine: moves bytes between memory that is mapped here, in one pass with the
// block digests of stored payloads.
//
// What it owns: a few threads that live as long as it does, and one 64 KiB staging block a thread
// (all the memory it ever takes, beside a few bytes per region). What it never does: plan, check a
// tensor's meaning, allocate a target, touch a file or a socket.
//
// Work is cut into pieces of at most 2 MiB, along loops or inside a contiguous run, and the pieces
// are taken by the calling thread and the engine's own; a batch never uses more than `threads`
// threads. When a call returns, every byte it wrote is visible to all threads and processes
// (non-temporal stores are fenced). The kernels are chosen by the CPU at run time (copy_kernels.h).
//
// Threads: every method may be called from any number of threads at once. After fork(2) in a
// process with an engine, the child's copy of it still works, on the calling thread alone.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/status.h"

namespace mooncake::transfer {

inline constexpr int kLoopsMax = 8;

// `inner_bytes` contiguous bytes, repeated by `loops` nested loops, outermost first:
//
//   for i0 < counts[0], i1 < counts[1], ...:
//     copy inner_bytes from source + sum(i * source_strides) to target + sum(i * target_strides)
//
// Strides are bytes and may be negative, and zero on the source side (one run read again and
// again). No target byte is written twice in a batch and none is also read in it: the caller's
// duty, not checked. A count of 0 or inner_bytes of 0 copies nothing.
struct StridedCopy {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  uint64_t inner_bytes = 0;
  int loops = 0;
  std::array<uint64_t, kLoopsMax> counts{};
  std::array<int64_t, kLoopsMax> source_strides{};
  std::array<int64_t, kLoopsMax> target_strides{};
};

// The reading half of a StridedCopy: the bytes of its runs one after the other, last loop fastest.
struct StridedSource {
  const std::byte* data = nullptr;
  uint64_t inner_bytes = 0;
  int loops = 0;
  std::array<uint64_t, kLoopsMax> counts{};
  std::array<int64_t, kLoopsMax> strides{};
};

// One payload object to be written: the bytes of `sources`, packed without gaps in this order, to
// `target` onward. Without a target only its digests are computed (the fingerprint of a repeat).
struct PayloadWrite {
  std::byte* target = nullptr;
  std::vector<StridedSource> sources;
};

// A part of a stored object and where it goes. Source strides are never zero where the count is
// above one, and the runs do not overlap in the source (what a cut of a dense row-major box always
// gives).
struct ObjectRegion {
  uint64_t source_offset = 0;  // from the object's first byte
  std::byte* target = nullptr;
  uint64_t inner_bytes = 0;
  int loops = 0;
  std::array<uint64_t, kLoopsMax> counts{};
  std::array<uint64_t, kLoopsMax> source_strides{};
  std::array<int64_t, kLoopsMax> target_strides{};
};

// One stored object to be read: its mapped bytes, the digests that were computed when it was
// written (of all its blocks), and the parts that are wanted.
struct ObjectRead {
  std::string name;  // for messages
  const std::byte* data = nullptr;
  uint64_t bytes = 0;
  std::span<const BlockDigest> digests;
  std::vector<ObjectRegion> regions;
};

enum class Verify : uint8_t { kOff, kBlocks };

// What a call reports to and obeys; all optional, all must outlive the call.
struct TransferControl {
  // Looked at before each piece (at most 2 MiB): CANCELLED soon after it became true.
  const std::atomic<bool>* cancelled = nullptr;
  // Raised by the bytes of every finished piece: target bytes of copies and reads, object bytes of
  // payload writes. After OK it has risen by exactly the batch's bytes.
  std::atomic<uint64_t>* progress_bytes = nullptr;
  // Raised by the bytes of every block that was verified (ReadObjects).
  std::atomic<uint64_t>* verified_bytes = nullptr;
};

struct CopyEngineOptions {
  // Threads of one batch, the caller's included; at least 1.
  int threads = 1;
  // Batches with fewer bytes than this leave their target in the cache, as a copy of something
  // small that is used next should; larger ones write past it with non-temporal stores, which saves
  // reading each target line from memory first.
  uint64_t non_temporal_bytes_min = uint64_t{4} << 20;
};

class PiecePool;

class CopyEngine {
 public:
  explicit CopyEngine(CopyEngineOptions options);
  ~CopyEngine();
  CopyEngine(const CopyEngine&) = delete;
  CopyEngine& operator=(const CopyEngine&) = delete;

  int threads() const;

  // All copies of a batch, in no order. INVALID_ARGUMENT, before a byte moves: loops outside
  // 0..kLoopsMax, sizes beyond 2^63, a missing pointer.
  Status Copy(std::span<const StridedCopy> copies, const TransferControl& control = {});

  // Writes (or only fingerprints) payload objects; the digests of each object's blocks, in the
  // order of `writes`. Memory is passed over once. Errors as Copy.
  Result<std::vector<std::vector<BlockDigest>>> WritePayloads(std::span<const PayloadWrite> writes,
                                                              const TransferControl& control = {});

  // Copies the regions of every object to their targets. With Verify::kBlocks each digest block
  // that holds a wanted byte is verified once, before any of its bytes is copied, in increasing
  // order of source offset per thread; blocks without a wanted byte are not read. CORRUPT names
  // object, block, byte range and both digests, or says that evidence is missing (a digest count
  // that does not fit the size). INVALID_ARGUMENT, before a byte moves: as Copy, and a region that
  // leaves its object or whose runs overlap. After any failure the targets hold an unknown part of
  // their bytes.
  Status ReadObjects(std::span<const ObjectRead> reads, Verify verify,
                     const TransferControl& control = {});

 private:
  const CopyEngineOptions options_;
  const std::unique_ptr<PiecePool> pool_;
};

}  // namespace mooncake::transfer
