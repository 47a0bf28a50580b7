// The outer form of a snapshot file: named sections of opaque records, framed and checksummed
// (docs/formats/snapshot.md).
//
//   "MCWSNAP1" frame... ; frame = u16 name size, name, u32 records, u64 body bytes, checksum, body;
//   body = (u32 size, record)...; numbers little-endian. A section may have several frames, one
//   after the other. The last frame is named "end" and is empty.
//
// Pure: bytes in, bytes out.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace mooncake::oplog {

class SnapshotBuilder {
 public:
  SnapshotBuilder();

  // Records of one section are added one after the other; a section that was left is not taken up
  // again.
  void Add(std::string_view section, std::string_view record);

  // The whole file.
  std::string Finish();

 private:
  void CloseFrame();

  std::string file_;
  std::string section_;
  std::string body_;
  uint32_t records_ = 0;
};

// Called for each record in order.
using SnapshotVisitor = std::function<Status(std::string_view section, std::string_view record)>;

// CORRUPT, before anything is visited: not such a file, cut short, a checksum that differs, bytes
// after the end; the message has the offset. After that, the first error of `visit`, which may be
// empty.
Status ReadSnapshotFrames(std::string_view file, const SnapshotVisitor& visit);

}  // namespace mooncake::oplog
