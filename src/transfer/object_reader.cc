#include "transfer/object_reader.h"

#include <algorithm>
#include <string>

#include "base/probe.h"
#include "transfer/piece_plan.h"

namespace mooncake::transfer {
namespace {

std::string Hex(const BlockDigest& digest) {
  return HexOf({reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()});
}

std::string RegionName(const ObjectRead& read, size_t index) {
  return "payload " + read.name + ", region " + std::to_string(index);
}

}  // namespace

Result<ObjectReader> ObjectReader::Prepare(std::span<const ObjectRead> reads, Verify verify,
                                           const CopyEngineOptions& options) {
  ObjectReader reader;
  reader.objects_.reserve(reads.size());
  uint64_t total = 0;
  for (const ObjectRead& read : reads) MC_RETURN_IF_ERROR(reader.AddObject(read, verify));
  MC_RETURN_IF_ERROR(reader.ForEachWalk([&](const StridedWalk& walk) {
    if (!__builtin_add_overflow(total, walk.total_bytes(), &total)) return OkStatus();
    return InvalidArgument("the regions together reach beyond 2^64 bytes");
  }));
  reader.stream_ = total >= options.non_temporal_bytes_min;
  return reader;
}

Result<ObjectReader::Region> ObjectReader::MakeRegion(const ObjectRead& read, size_t index) {
  const ObjectRegion& from = read.regions[index];
  const auto name = [&] { return RegionName(read, index); };
  if (from.source_offset > read.bytes) {
    return InvalidArgument(name() + ": begins at byte " + std::to_string(from.source_offset) +
                           " of an object of " + std::to_string(read.bytes));
  }
  StridedCopy copy{.source = read.data == nullptr ? nullptr : read.data + from.source_offset,
                   .target = from.target,
                   .inner_bytes = from.inner_bytes,
                   .loops = from.loops,
                   .counts = from.counts,
                   .target_strides = from.target_strides};
  for (int loop = 0; loop < std::min(from.loops, kLoopsMax); ++loop) {
    // One that does not fit becomes negative and is refused below as running backward.
    copy.source_strides[loop] = static_cast<int64_t>(from.source_strides[loop]);
  }
  MC_ASSIGN_OR_RETURN(const StridedWalk walk, MakeWalk(copy, name));
  Region region{.walk = BySource(walk), .begin = from.source_offset, .end = from.source_offset};
  if (region.walk.inner_bytes == 0) return region;
  if (!WalkAxis::Source(region.walk, &region.axis)) {
    return InvalidArgument(name() + ": its runs overlap or interleave in the source");
  }
  region.end += region.walk.inner_bytes;
  for (int loop = 0; loop < region.walk.loops; ++loop) {
    region.end += (region.walk.counts[loop] - 1) * region.axis.steps[loop];
  }
  if (region.end > read.bytes) {
    return InvalidArgument(name() + ": ends at byte " + std::to_string(region.end) +
                           " of an object of " + std::to_string(read.bytes));
  }
  return region;
}

Status ObjectReader::AddObject(const ObjectRead& read, Verify verify) {
  Object object;
  object.read = &read;
  object.regions.reserve(read.regions.size());
  for (size_t i = 0; i < read.regions.size(); ++i) {
    MC_ASSIGN_OR_RETURN(const Region region, MakeRegion(read, i));
    if (region.walk.inner_bytes != 0) object.regions.push_back(region);
  }
  if (object.regions.empty()) return OkStatus();
  if (verify == Verify::kBlocks && read.digests.size() != DigestBlockCount(read.bytes)) {
    return Corrupt("payload " + read.name + " of " + std::to_string(read.bytes) + " bytes has " +
                   std::to_string(read.digests.size()) + " block digests, expected " +
                   std::to_string(DigestBlockCount(read.bytes)));
  }
  std::sort(object.regions.begin(), object.regions.end(),
            [](const Region& a, const Region& b) { return a.begin < b.begin; });
  uint64_t end = 0;
  for (const Region& region : object.regions) {
    end = std::max(end, region.end);
    object.latest_end.push_back(end);
  }
  object.first_block = object.regions.front().begin / kDigestBlockBytes;
  block_begins_.push_back(block_begins_.back() + DigestBlockCount(end) - object.first_block);
  objects_.push_back(std::move(object));
  return OkStatus();
}

void ObjectReader::CollectParts(const Object& object, uint64_t begin, uint64_t end,
                                std::vector<StridedWalk>* parts) const {
  size_t i = std::upper_bound(object.latest_end.begin(), object.latest_end.end(), begin) -
             object.latest_end.begin();
  for (; i < object.regions.size() && object.regions[i].begin < end; ++i) {
    const Region& region = object.regions[i];
    if (region.end <= begin) continue;
    const uint64_t from = std::max(begin, region.begin) - region.begin;
    const uint64_t to = std::min(end, region.end) - region.begin;
    ForEachCut(region.walk, region.axis, from, to,
               [&](const StridedWalk& part) { parts->push_back(part); });
  }
}

Status ObjectReader::VerifyBlock(const Object& object, uint64_t block, uint64_t bytes,
                                 Verified* waiting) const {
  const std::byte* data = object.read->data + block * kDigestBlockBytes;
  BlockDigest found;
  if (bytes == kDigestBlockBytes && waiting->source != nullptr) {
    found = kernels_->hash_and_stream(data, waiting->source, waiting->target);
    *waiting = {};
  } else {
    Flush(waiting);
    found = bytes == kDigestBlockBytes ? kernels_->hash_block(data) : BlockDigestOf(data, bytes);
  }
  const BlockDigest& expected = object.read->digests[block];
  if (found == expected) return OkStatus();
  const uint64_t begin = block * kDigestBlockBytes;
  MC_PROBE("transfer.block_refused");
  return Corrupt("payload " + object.read->name + ": block " + std::to_string(block) + ", bytes [" +
                 std::to_string(begin) + ", " + std::to_string(begin + bytes) +
                 "): expected digest " + Hex(expected) + ", found " + Hex(found));
}

void ObjectReader::Flush(Verified* waiting) const {
  if (waiting->source == nullptr) return;
  kernels_->stream(
      {.source = waiting->source, .target = waiting->target, .inner_bytes = kDigestBlockBytes});
  *waiting = {};
}

Status ObjectReader::ReadBlocks(uint64_t begin, uint64_t end,
                                const TransferControl& control) const {
  std::vector<StridedWalk> parts;
  Verified waiting;
  uint64_t copied = 0;
  uint64_t verified = 0;
  size_t i =
      std::upper_bound(block_begins_.begin(), block_begins_.end(), begin) - block_begins_.begin();
  for (--i; i < objects_.size() && block_begins_[i] < end; ++i) {
    const Object& object = objects_[i];
    const uint64_t first =
        object.first_block + std::max(begin, block_begins_[i]) - block_begins_[i];
    const uint64_t stop =
        object.first_block + std::min(end, block_begins_[i + 1]) - block_begins_[i];
    for (uint64_t block = first; block < stop; ++block) {
      const uint64_t offset = block * kDigestBlockBytes;
      const uint64_t bytes = std::min(kDigestBlockBytes, object.read->bytes - offset);
      parts.clear();
      CollectParts(object, offset, offset + bytes, &parts);
      if (parts.empty()) continue;
      MC_RETURN_IF_ERROR(VerifyBlock(object, block, bytes, &waiting));
      verified += bytes;
      for (const StridedWalk& part : parts) copied += part.total_bytes();
      if (stream_ && parts.size() == 1 && parts[0].loops == 0 &&
          parts[0].inner_bytes == kDigestBlockBytes) {
        waiting = {.source = parts[0].source, .target = parts[0].target};
        continue;
      }
      for (const StridedWalk& part : parts) {
        Execute(part, stream_ ? kernels_->stream : kernels_->copy);
      }
    }
  }
  Flush(&waiting);
  AddProgress(control, copied);
  if (control.verified_bytes != nullptr) {
    control.verified_bytes->fetch_add(verified, std::memory_order_relaxed);
  }
  return OkStatus();
}

}  // namespace mooncake::transfer
