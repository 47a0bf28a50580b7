// How a batch is cut into pieces, and what each piece looks at and reports.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/digest.h"
#include "transfer/copy_engine.h"

namespace mooncake::transfer {

// Units (bytes, or digest blocks) 0..units-1 in pieces of equal length, the last one shorter.
struct PiecePlan {
  uint64_t units = 0;
  uint64_t units_per_piece = 1;
  uint64_t pieces = 0;

  uint64_t begin(uint64_t piece) const { return piece * units_per_piece; }
  uint64_t end(uint64_t piece) const { return std::min(units, begin(piece) + units_per_piece); }
};

// Some pieces for each thread, so that all finish together; none longer than 2 MiB, so that a
// cancellation is soon seen; none shorter than 128 KiB, so that taking one costs nothing beside it.
// `units_per_block`: units in kDigestBlockBytes.
inline PiecePlan PlanPieces(uint64_t units, uint64_t units_per_block, int threads) {
  constexpr uint64_t kPiecesPerThread = 8;
  constexpr uint64_t kBlocksMin = 2;
  constexpr uint64_t kBlocksMax = 32;
  PiecePlan plan;
  plan.units = units;
  const uint64_t blocks = units / units_per_block;
  const uint64_t share = blocks / (kPiecesPerThread * static_cast<uint64_t>(threads));
  plan.units_per_piece = std::clamp(share, kBlocksMin, kBlocksMax) * units_per_block;
  plan.pieces = units / plan.units_per_piece + (units % plan.units_per_piece != 0 ? 1 : 0);
  return plan;
}

inline Status CheckNotCancelled(const TransferControl& control) {
  if (control.cancelled == nullptr || !control.cancelled->load(std::memory_order_relaxed)) {
    return OkStatus();
  }
  return Cancelled("the transfer was cancelled");
}

inline void AddProgress(const TransferControl& control, uint64_t bytes) {
  if (control.progress_bytes != nullptr) {
    control.progress_bytes->fetch_add(bytes, std::memory_order_relaxed);
  }
}

}  // namespace mooncake::transfer
