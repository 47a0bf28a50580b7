#include "transfer/payload_writer.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace mooncake::transfer {
namespace {

// The source as a walk into dense memory. Its target is never written to and only has to be an
// address: every use takes the parts' own order and length.
StridedCopy DenseCopyOf(const StridedSource& source) {
  StridedCopy copy{.source = source.data,
                   .target = const_cast<std::byte*>(source.data),
                   .inner_bytes = source.inner_bytes,
                   .loops = source.loops,
                   .counts = source.counts,
                   .source_strides = source.strides};
  // Wrapping is harmless: a size that wraps is refused by MakeWalk.
  uint64_t bytes = source.inner_bytes;
  for (int loop = std::min(source.loops, kLoopsMax) - 1; loop >= 0; --loop) {
    copy.target_strides[loop] = static_cast<int64_t>(bytes);
    bytes *= source.counts[loop];
  }
  return copy;
}

}  // namespace

Result<PayloadWriter> PayloadWriter::Prepare(std::span<const PayloadWrite> writes,
                                             const CopyEngineOptions& options) {
  PayloadWriter writer;
  writer.objects_.reserve(writes.size());
  writer.digests_.reserve(writes.size());
  uint64_t total = 0;
  for (size_t i = 0; i < writes.size(); ++i) {
    MC_RETURN_IF_ERROR(writer.AddObject(i, writes[i]));
    if (__builtin_add_overflow(total, writer.objects_.back().bytes(), &total)) {
      return InvalidArgument("the payloads together reach beyond 2^64 bytes");
    }
  }
  writer.stream_ = total >= options.non_temporal_bytes_min;
  return writer;
}

Status PayloadWriter::AddObject(size_t index, const PayloadWrite& write) {
  Object object;
  object.target = write.target;
  for (size_t i = 0; i < write.sources.size(); ++i) {
    MC_ASSIGN_OR_RETURN(const StridedWalk walk, MakeWalk(DenseCopyOf(write.sources[i]), [&] {
                          return "payload " + std::to_string(index) + ", source " +
                                 std::to_string(i);
                        }));
    if (walk.inner_bytes == 0) continue;
    uint64_t end = 0;
    if (__builtin_add_overflow(object.bytes(), walk.total_bytes(), &end)) {
      return InvalidArgument("payload " + std::to_string(index) + " reaches beyond 2^64 bytes");
    }
    object.begins.push_back(end);
    object.sources.push_back(walk);
  }
  const uint64_t blocks = DigestBlockCount(object.bytes());
  block_begins_.push_back(block_begins_.back() + blocks);
  digests_.emplace_back(blocks);
  objects_.push_back(std::move(object));
  return OkStatus();
}

uint64_t PayloadWriter::WriteBlocks(uint64_t begin, uint64_t end, Staging* staging) {
  uint64_t written = 0;
  size_t i =
      std::upper_bound(block_begins_.begin(), block_begins_.end(), begin) - block_begins_.begin();
  for (--i; i < objects_.size() && block_begins_[i] < end; ++i) {
    const uint64_t first = std::max(begin, block_begins_[i]) - block_begins_[i];
    const uint64_t stop = std::min(end, block_begins_[i + 1]) - block_begins_[i];
    for (uint64_t block = first; block < stop; ++block) {
      const uint64_t offset = block * kDigestBlockBytes;
      const uint64_t bytes = std::min(kDigestBlockBytes, objects_[i].bytes() - offset);
      digests_[i][block] = WriteBlock(objects_[i], offset, bytes, staging);
      written += bytes;
    }
  }
  return written;
}

BlockDigest PayloadWriter::WriteBlock(const Object& object, uint64_t begin, uint64_t bytes,
                                      Staging* staging) {
  std::byte* const target = object.target == nullptr ? nullptr : object.target + begin;
  // Past the caches, the block is gathered into staging first; else straight to where it belongs.
  std::byte* const gathered = target == nullptr || stream_ ? staging->Block() : target;
  const std::byte* whole = nullptr;
  uint64_t filled = 0;
  size_t i =
      std::upper_bound(object.begins.begin(), object.begins.end(), begin) - object.begins.begin();
  for (--i; filled < bytes; ++i) {
    const StridedWalk& source = object.sources[i];
    const uint64_t from = begin + filled - object.begins[i];
    const uint64_t to = std::min(begin + bytes, object.begins[i + 1]) - object.begins[i];
    ForEachCut(source, WalkAxis::Stream(source), from, to, [&](StridedWalk part) {
      if (part.loops == 0 && part.inner_bytes == bytes) {
        whole = part.source;
      } else {
        part.target = gathered + filled;
        Execute(part, kernels_->copy);
      }
      filled += part.total_bytes();
    });
  }
  const bool in_place = whole == nullptr && gathered == target;
  if (whole == nullptr) whole = gathered;
  if (bytes == kDigestBlockBytes) {
    if (target == nullptr || in_place) return kernels_->hash_block(whole);
    if (stream_) return kernels_->hash_and_stream(whole, whole, target);
  }
  const BlockDigest digest =
      bytes == kDigestBlockBytes ? kernels_->hash_block(whole) : BlockDigestOf(whole, bytes);
  if (target != nullptr && !in_place) std::memcpy(target, whole, bytes);
  return digest;
}

}  // namespace mooncake::transfer
