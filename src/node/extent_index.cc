#include "node/extent_index.h"

#include <bit>
#include <utility>

#include "env/file.h"
#include "transfer/extent_header.h"

namespace mooncake::node {
namespace {

constexpr uint64_t kPlacesPerWord = 64;
static_assert(std::endian::native == std::endian::little);

uint64_t IndexBytes(uint64_t slab_bytes) {
  const uint64_t places = slab_bytes / transfer::kExtentAlignment + 1;
  return (places + kPlacesPerWord - 1) / kPlacesPerWord * sizeof(uint64_t);
}

uint64_t BitOf(uint64_t offset) {
  return uint64_t{1} << (offset / transfer::kExtentAlignment % kPlacesPerWord);
}

}  // namespace

Result<ExtentIndex> ExtentIndex::Map(env::MemoryFile file) {
  MC_ASSIGN_OR_RETURN(env::Mapping words, file.Map(env::MapAccess::kReadWrite));
  return ExtentIndex(std::move(file), std::move(words));
}

Result<ExtentIndex> ExtentIndex::Create(const std::string& path, uint64_t slab_bytes) {
  MC_RETURN_IF_ERROR(env::RemoveFile(path));
  MC_ASSIGN_OR_RETURN(env::MemoryFile file,
                      env::MemoryFile::CreateFile(path, IndexBytes(slab_bytes)));
  return Map(std::move(file));
}

Result<ExtentIndex> ExtentIndex::Open(const std::string& path, uint64_t slab_bytes) {
  MC_ASSIGN_OR_RETURN(env::MemoryFile file,
                      env::MemoryFile::OpenFile(path, env::MapAccess::kReadWrite));
  if (file.size() != IndexBytes(slab_bytes)) {
    return Corrupt(path + ": the index of a slab of " + std::to_string(slab_bytes) + " bytes has " +
                   std::to_string(IndexBytes(slab_bytes)) + " bytes, got " +
                   std::to_string(file.size()));
  }
  return Map(std::move(file));
}

uint64_t* ExtentIndex::word(uint64_t offset) const {
  const uint64_t at = offset / transfer::kExtentAlignment / kPlacesPerWord;
  return reinterpret_cast<uint64_t*>(words_.data()) + at;
}

void ExtentIndex::Set(uint64_t offset) { *word(offset) |= BitOf(offset); }

void ExtentIndex::Clear(uint64_t offset) { *word(offset) &= ~BitOf(offset); }

void ExtentIndex::ForEach(const std::function<void(uint64_t offset)>& visit) const {
  const auto* words = reinterpret_cast<const uint64_t*>(words_.data());
  for (uint64_t at = 0; at < words_.size() / sizeof(uint64_t); ++at) {
    for (uint64_t left = words[at]; left != 0; left &= left - 1) {
      const auto bit = static_cast<uint64_t>(std::countr_zero(left));
      visit((at * kPlacesPerWord + bit) * transfer::kExtentAlignment);
    }
  }
}

}  // namespace mooncake::node
