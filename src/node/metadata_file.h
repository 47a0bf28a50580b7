// One METADATA object as a file of the node's folder: its bytes behind a header that proves them.
//
// Pure functions. docs/formats/node_folder.md is the format's page. On disk: never changed, only
// succeeded by another magic.
//
//   offset  bytes
//        0      8  "MCWMETA1"
//        8      4  length of the name, little-endian
//       12      8  length of the content, little-endian
//       20     32  SHA-256 of the content
//       52      n  the name, as the wire has it ("manifest", "digests/<participant>")
//     52+n      c  the content; the file ends with it
#pragma once

#include <string>
#include <string_view>

#include "base/digest.h"
#include "base/status.h"

namespace mooncake::node {

// The names a METADATA object can have: "manifest", "affinity", and "digests/" followed by a
// UrlEncode'd participant. Anything else is INVALID_ARGUMENT: a name becomes a file name.
Status ValidateMetadataName(std::string_view name);

// The file's name in its import's folder: UrlEncode(name), or "long-" and the hex SHA-256 of the
// name where that is longer than a file name can be. Never begins with a dot.
std::string MetadataFileName(std::string_view name);

std::string EncodeMetadataFile(std::string_view name, std::string_view content,
                               const Sha256Digest& sha256);

struct MetadataFile {
  std::string name;
  std::string content;
  Sha256Digest sha256{};
};
// CORRUPT, saying what disagrees, unless `bytes` is exactly what EncodeMetadataFile made for an
// object that belongs under `file_name`.
Result<MetadataFile> DecodeMetadataFile(std::string_view file_name, std::string_view bytes);

}  // namespace mooncake::node
