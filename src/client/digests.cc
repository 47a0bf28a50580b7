#include "client/digests.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace mooncake::client {
namespace {

constexpr std::string_view kMagic = "MCWDIG01";
constexpr std::string_view kMagicWithFragments = "MCWDIG02";
constexpr size_t kDigestBytes = sizeof(BlockDigest);
static_assert(kDigestBytes == 16 && alignof(BlockDigest) == 1);

template <class T>
void AppendLittleEndian(std::string* out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out->push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

// Reads forward through untrusted bytes; every refusal says where.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  size_t offset() const { return offset_; }
  size_t left() const { return bytes_.size() - offset_; }

  Result<std::string_view> Take(uint64_t count, std::string_view what) {
    if (count > left()) {
      return Corrupt("digests object: expected " + std::to_string(count) + " bytes of " +
                     std::string(what) + " at offset " + std::to_string(offset_) + ", got " +
                     std::to_string(left()));
    }
    const std::string_view taken = bytes_.substr(offset_, count);
    offset_ += count;
    return taken;
  }

  template <class T>
  Result<T> TakeInteger(std::string_view what) {
    MC_ASSIGN_OR_RETURN(const std::string_view bytes, Take(sizeof(T), what));
    T value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) {
      value |= static_cast<T>(static_cast<uint8_t>(bytes[i])) << (8 * i);
    }
    return value;
  }

 private:
  std::string_view bytes_;
  size_t offset_ = 0;
};

Result<DigestsTable::Entry> TakeEntry(Reader* reader) {
  DigestsTable::Entry entry;
  MC_ASSIGN_OR_RETURN(const uint32_t name_bytes, reader->TakeInteger<uint32_t>("a name's length"));
  MC_ASSIGN_OR_RETURN(entry.name, reader->Take(name_bytes, "a name"));
  MC_ASSIGN_OR_RETURN(entry.nbytes, reader->TakeInteger<uint64_t>("a payload's length"));
  // Without DigestBlockCount's addition, which a hostile length could wrap.
  const uint64_t count =
      entry.nbytes / kDigestBlockBytes + (entry.nbytes % kDigestBlockBytes != 0 ? 1 : 0);
  MC_ASSIGN_OR_RETURN(const std::string_view blocks,
                      reader->Take(count * kDigestBytes, "block digests"));
  entry.blocks = {reinterpret_cast<const BlockDigest*>(blocks.data()), count};
  return entry;
}

Result<DigestsTable::Fragment> TakeFragment(Reader* reader) {
  DigestsTable::Fragment fragment;
  MC_ASSIGN_OR_RETURN(const uint32_t id_bytes, reader->TakeInteger<uint32_t>("an id's length"));
  MC_ASSIGN_OR_RETURN(fragment.id, reader->Take(id_bytes, "an id"));
  MC_ASSIGN_OR_RETURN(fragment.nbytes, reader->TakeInteger<uint64_t>("a fragment's length"));
  MC_ASSIGN_OR_RETURN(const std::string_view sha256,
                      reader->Take(fragment.sha256.size(), "a fingerprint"));
  std::memcpy(fragment.sha256.data(), sha256.data(), sha256.size());
  return fragment;
}

Status OutOfOrder(const char* kind, std::string_view name, size_t offset, std::string_view before) {
  return Corrupt("digests object: " + std::string(kind) + " " + std::string(name) + " at offset " +
                 std::to_string(offset) + " does not sort after " + std::string(before));
}

void AppendFragments(std::vector<FragmentFingerprint> fragments, std::string* bytes) {
  std::sort(fragments.begin(), fragments.end(),
            [](const auto& a, const auto& b) { return a.fragment_id < b.fragment_id; });
  AppendLittleEndian<uint64_t>(bytes, fragments.size());
  for (size_t i = 0; i < fragments.size(); ++i) {
    const FragmentFingerprint& fragment = fragments[i];
    MC_CHECK(i == 0 || fragments[i - 1].fragment_id != fragment.fragment_id);
    AppendLittleEndian<uint32_t>(bytes, static_cast<uint32_t>(fragment.fragment_id.size()));
    *bytes += fragment.fragment_id;
    AppendLittleEndian<uint64_t>(bytes, fragment.nbytes);
    bytes->append(reinterpret_cast<const char*>(fragment.sha256.data()), fragment.sha256.size());
  }
}

}  // namespace

Sha256Digest FingerprintOf(std::span<const BlockDigest> blocks) {
  return Sha256Of({reinterpret_cast<const char*>(blocks.data()), blocks.size() * kDigestBytes});
}

std::string EncodeDigests(std::vector<PayloadDigests> payloads,
                          std::vector<FragmentFingerprint> fragments) {
  std::sort(payloads.begin(), payloads.end(),
            [](const PayloadDigests& a, const PayloadDigests& b) { return a.name < b.name; });
  std::string bytes(fragments.empty() ? kMagic : kMagicWithFragments);
  AppendLittleEndian<uint64_t>(&bytes, payloads.size());
  for (size_t i = 0; i < payloads.size(); ++i) {
    const PayloadDigests& payload = payloads[i];
    MC_CHECK(i == 0 || payloads[i - 1].name != payload.name);
    MC_CHECK(payload.blocks.size() == DigestBlockCount(payload.nbytes));
    AppendLittleEndian<uint32_t>(&bytes, static_cast<uint32_t>(payload.name.size()));
    bytes += payload.name;
    AppendLittleEndian<uint64_t>(&bytes, payload.nbytes);
    bytes.append(reinterpret_cast<const char*>(payload.blocks.data()),
                 payload.blocks.size() * kDigestBytes);
  }
  if (!fragments.empty()) AppendFragments(std::move(fragments), &bytes);
  return bytes;
}

Result<DigestsTable> DigestsTable::Decode(std::string bytes) {
  DigestsTable table;
  table.bytes_ = std::make_unique<const std::string>(std::move(bytes));
  Reader reader(*table.bytes_);
  MC_ASSIGN_OR_RETURN(const std::string_view magic, reader.Take(kMagic.size(), "magic"));
  if (magic != kMagic && magic != kMagicWithFragments) {
    return Corrupt("digests object begins with " + HexOf(magic) +
                   " instead of \"MCWDIG01\" or \"MCWDIG02\"");
  }
  MC_ASSIGN_OR_RETURN(const uint64_t count, reader.TakeInteger<uint64_t>("a payload count"));
  for (uint64_t i = 0; i < count; ++i) {
    const size_t begin = reader.offset();
    MC_ASSIGN_OR_RETURN(const Entry entry, TakeEntry(&reader));
    if (!table.entries_.empty() && !(table.entries_.back().name < entry.name)) {
      return OutOfOrder("payload", entry.name, begin, table.entries_.back().name);
    }
    table.entries_.push_back(entry);
  }
  if (magic == kMagicWithFragments) {
    MC_ASSIGN_OR_RETURN(const uint64_t fragments, reader.TakeInteger<uint64_t>("a fragment count"));
    if (fragments == 0) return Corrupt("digests object: \"MCWDIG02\" without a fragment");
    for (uint64_t i = 0; i < fragments; ++i) {
      const size_t begin = reader.offset();
      MC_ASSIGN_OR_RETURN(const Fragment fragment, TakeFragment(&reader));
      if (i != 0 && !(table.fragments_.back().id < fragment.id)) {
        return OutOfOrder("fragment", fragment.id, begin, table.fragments_.back().id);
      }
      table.fragments_.push_back(fragment);
    }
  }
  if (reader.left() != 0) {
    return Corrupt("digests object: expected its end at offset " + std::to_string(reader.offset()) +
                   ", got " + std::to_string(reader.left()) + " more bytes");
  }
  return table;
}

const DigestsTable::Entry* DigestsTable::Find(std::string_view name) const {
  const auto found = std::lower_bound(
      entries_.begin(), entries_.end(), name,
      [](const Entry& entry, std::string_view wanted) { return entry.name < wanted; });
  return found != entries_.end() && found->name == name ? &*found : nullptr;
}

const DigestsTable::Fragment* DigestsTable::FindFragment(std::string_view id) const {
  const auto found = std::lower_bound(
      fragments_.begin(), fragments_.end(), id,
      [](const Fragment& fragment, std::string_view wanted) { return fragment.id < wanted; });
  return found != fragments_.end() && found->id == id ? &*found : nullptr;
}

}  // namespace mooncake::client
