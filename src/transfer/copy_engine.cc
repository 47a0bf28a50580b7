#include "transfer/copy_engine.h"

#include <algorithm>

#include "transfer/copy_kernels.h"
#include "transfer/object_reader.h"
#include "transfer/payload_writer.h"
#include "transfer/piece_plan.h"
#include "transfer/piece_pool.h"
#include "transfer/strided_walk.h"

namespace mooncake::transfer {
namespace {

// The batch's walks one after the other, and where each begins.
struct WalkList {
  std::vector<StridedWalk> walks;
  std::vector<uint64_t> begins{0};

  Status Add(const StridedWalk& walk) {
    if (walk.inner_bytes == 0) return OkStatus();
    uint64_t end = 0;
    if (__builtin_add_overflow(total_bytes(), walk.total_bytes(), &end)) {
      return InvalidArgument("the copies together reach beyond 2^64 bytes");
    }
    begins.push_back(end);
    walks.push_back(walk);
    return OkStatus();
  }
  uint64_t total_bytes() const { return begins.back(); }
};

// Bytes [begin, end) of the list.
void CopyRange(const WalkList& list, uint64_t begin, uint64_t end, void (*kernel)(const RunGrid&)) {
  size_t i = std::upper_bound(list.begins.begin(), list.begins.end(), begin) - list.begins.begin();
  for (--i; i < list.walks.size() && list.begins[i] < end; ++i) {
    const StridedWalk& walk = list.walks[i];
    const uint64_t from = std::max(begin, list.begins[i]) - list.begins[i];
    const uint64_t to = std::min(end, list.begins[i + 1]) - list.begins[i];
    ForEachCut(walk, WalkAxis::Stream(walk), from, to,
               [kernel](const StridedWalk& part) { Execute(part, kernel); });
  }
}

Status CopyWalks(const WalkList& list, const CopyEngineOptions& options, PiecePool* pool,
                 const TransferControl& control) {
  const uint64_t total = list.total_bytes();
  const CopyKernels& kernels = KernelsOfThisCpu();
  const auto kernel = total >= options.non_temporal_bytes_min ? kernels.stream : kernels.copy;
  const PiecePlan plan = PlanPieces(total, kDigestBlockBytes, options.threads);
  return pool->Run(plan.pieces, [&](uint64_t piece, Staging&) -> Status {
    MC_RETURN_IF_ERROR(CheckNotCancelled(control));
    const uint64_t begin = plan.begin(piece);
    const uint64_t end = plan.end(piece);
    CopyRange(list, begin, end, kernel);
    AddProgress(control, end - begin);
    return OkStatus();
  });
}

}  // namespace

CopyEngine::CopyEngine(CopyEngineOptions options)
    : options_(options), pool_(std::make_unique<PiecePool>(options.threads)) {}

CopyEngine::~CopyEngine() = default;

int CopyEngine::threads() const { return options_.threads; }

Status CopyEngine::Copy(std::span<const StridedCopy> copies, const TransferControl& control) {
  WalkList list;
  list.walks.reserve(copies.size());
  list.begins.reserve(copies.size() + 1);
  for (size_t i = 0; i < copies.size(); ++i) {
    MC_ASSIGN_OR_RETURN(const StridedWalk walk,
                        MakeWalk(copies[i], [i] { return "copy " + std::to_string(i); }));
    MC_RETURN_IF_ERROR(list.Add(ByTarget(walk)));
  }
  return CopyWalks(list, options_, pool_.get(), control);
}

Result<std::vector<std::vector<BlockDigest>>> CopyEngine::WritePayloads(
    std::span<const PayloadWrite> writes, const TransferControl& control) {
  MC_ASSIGN_OR_RETURN(PayloadWriter writer, PayloadWriter::Prepare(writes, options_));
  const PiecePlan plan = PlanPieces(writer.blocks(), 1, options_.threads);
  MC_RETURN_IF_ERROR(pool_->Run(plan.pieces, [&](uint64_t piece, Staging& staging) -> Status {
    MC_RETURN_IF_ERROR(CheckNotCancelled(control));
    AddProgress(control, writer.WriteBlocks(plan.begin(piece), plan.end(piece), &staging));
    return OkStatus();
  }));
  return std::move(writer).TakeDigests();
}

Status CopyEngine::ReadObjects(std::span<const ObjectRead> reads, Verify verify,
                               const TransferControl& control) {
  MC_ASSIGN_OR_RETURN(const ObjectReader reader, ObjectReader::Prepare(reads, verify, options_));
  if (verify == Verify::kOff) {
    WalkList list;
    MC_RETURN_IF_ERROR(
        reader.ForEachWalk([&](const StridedWalk& walk) { return list.Add(ByTarget(walk)); }));
    return CopyWalks(list, options_, pool_.get(), control);
  }
  const PiecePlan plan = PlanPieces(reader.blocks(), 1, options_.threads);
  return pool_->Run(plan.pieces, [&](uint64_t piece, Staging&) -> Status {
    MC_RETURN_IF_ERROR(CheckNotCancelled(control));
    return reader.ReadBlocks(plan.begin(piece), plan.end(piece), control);
  });
}

}  // namespace mooncake::transfer
