#include "node/metadata_file.h"

#include <cstdint>

#include "base/url_encode.h"

namespace mooncake::node {
namespace {

constexpr std::string_view kMagic = "MCWMETA1";
constexpr size_t kHeaderBytes = 52;
// A participant id is the publisher's own text; longer than this it is no id.
constexpr size_t kNameBytesMax = 4096;
// NAME_MAX less room for the kernel's and our own temporary names.
constexpr size_t kFileNameBytesMax = 200;

template <class T>
void AppendLittleEndian(std::string* out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out->push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

template <class T>
T LoadLittleEndian(std::string_view bytes) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<T>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  }
  return value;
}

Status Disagreement(std::string_view file_name, std::string_view what, uint64_t expected,
                    uint64_t got) {
  return Corrupt("metadata file " + std::string(file_name) + ": expected " + std::string(what) +
                 " of " + std::to_string(expected) + " bytes, got " + std::to_string(got));
}

}  // namespace

Status ValidateMetadataName(std::string_view name) {
  if (name == "manifest" || name == "affinity") return OkStatus();
  constexpr std::string_view kDigests = "digests/";
  const auto refuse = [&](std::string_view why) {
    return InvalidArgument("METADATA object name \"" + UrlEncode(name.substr(0, 200)) +
                           "\" (percent-encoded here) " + std::string(why));
  };
  if (name.size() > kNameBytesMax) {
    return refuse("is longer than " + std::to_string(kNameBytesMax) + " bytes");
  }
  if (!name.starts_with(kDigests) || name.size() == kDigests.size()) {
    return refuse("is not manifest, affinity or digests/<participant>");
  }
  const std::string_view participant = name.substr(kDigests.size());
  const Result<std::string> decoded = UrlDecode(participant);
  if (!decoded.ok() || UrlEncode(*decoded) != participant) {
    return refuse("has a participant that is not UrlEncode'd");
  }
  return OkStatus();
}

std::string MetadataFileName(std::string_view name) {
  std::string encoded = UrlEncode(name);
  if (encoded.size() <= kFileNameBytesMax) return encoded;
  return "long-" + ToHex(Sha256Of(name));
}

std::string EncodeMetadataFile(std::string_view name, std::string_view content,
                               const Sha256Digest& sha256) {
  std::string bytes;
  bytes.reserve(kHeaderBytes + name.size() + content.size());
  bytes += kMagic;
  AppendLittleEndian<uint32_t>(&bytes, static_cast<uint32_t>(name.size()));
  AppendLittleEndian<uint64_t>(&bytes, content.size());
  bytes.append(reinterpret_cast<const char*>(sha256.data()), sha256.size());
  bytes += name;
  bytes += content;
  return bytes;
}

Result<MetadataFile> DecodeMetadataFile(std::string_view file_name, std::string_view bytes) {
  if (bytes.size() < kHeaderBytes) {
    return Disagreement(file_name, "a header", kHeaderBytes, bytes.size());
  }
  if (!bytes.starts_with(kMagic)) {
    return Corrupt("metadata file " + std::string(file_name) + " begins with " +
                   HexOf(bytes.substr(0, kMagic.size())) + " instead of \"MCWMETA1\"");
  }
  const auto name_bytes = LoadLittleEndian<uint32_t>(bytes.substr(8, 4));
  const auto content_bytes = LoadLittleEndian<uint64_t>(bytes.substr(12, 8));
  const uint64_t rest = bytes.size() - kHeaderBytes;
  if (name_bytes > rest) return Disagreement(file_name, "a name", name_bytes, rest);
  if (content_bytes != rest - name_bytes) {
    return Disagreement(file_name, "content", content_bytes, rest - name_bytes);
  }
  MetadataFile file;
  file.name = bytes.substr(kHeaderBytes, name_bytes);
  if (Status valid = ValidateMetadataName(file.name); !valid.ok()) {
    return Corrupt("metadata file " + std::string(file_name) + ": " + valid.message());
  }
  if (MetadataFileName(file.name) != file_name) {
    return Corrupt("metadata file " + std::string(file_name) + " holds the object " + file.name);
  }
  const std::string_view content = bytes.substr(kHeaderBytes + name_bytes);
  const std::string_view sha256 = bytes.substr(20, 32);
  std::copy(sha256.begin(), sha256.end(), file.sha256.begin());
  const Sha256Digest actual = Sha256Of(content);
  if (actual != file.sha256) {
    return Corrupt("metadata file " + std::string(file_name) + ": expected content with SHA-256 " +
                   ToHex(file.sha256) + ", got " + ToHex(actual));
  }
  file.content = content;
  return file;
}

}  // namespace mooncake::node
