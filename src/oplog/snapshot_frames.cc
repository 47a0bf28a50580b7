#include "oplog/snapshot_frames.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/digest.h"

namespace mooncake::oplog {
namespace {

constexpr std::string_view kMagic = "MCWSNAP1";
constexpr std::string_view kEnd = "end";
constexpr size_t kFrameBodyBytes = size_t{4} << 20;
constexpr size_t kChecksumBytes = sizeof(BlockDigest::bytes);

template <class Number>
void PutNumber(Number number, std::string* out) {
  for (size_t i = 0; i < sizeof number; ++i) out->push_back(static_cast<char>(number >> (8 * i)));
}

// Over the frame without its checksum.
BlockDigest ChecksumOf(std::string_view head, std::string_view body) {
  const BlockDigest inner = BlockDigestOf(body.data(), body.size());
  std::string text(head);
  text.append(reinterpret_cast<const char*>(inner.bytes.data()), inner.bytes.size());
  return BlockDigestOf(text.data(), text.size());
}

// Reads on from a position; a read beyond the end fails for good.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : bytes_(bytes) {}

  template <class Number>
  Number Take() {
    const std::string_view raw = Take(sizeof(Number));
    Number number = 0;
    for (size_t i = raw.size(); i-- > 0;) {
      number = static_cast<Number>(number << 8 | static_cast<uint8_t>(raw[i]));
    }
    return number;
  }
  std::string_view Take(uint64_t bytes) {
    if (bytes > bytes_.size() - at_) {
      failed_ = true;
      return {};
    }
    const std::string_view taken = bytes_.substr(at_, bytes);
    at_ += bytes;
    return taken;
  }
  size_t at() const { return at_; }
  bool failed() const { return failed_; }
  bool done() const { return at_ == bytes_.size(); }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
  bool failed_ = false;
};

struct Frame {
  std::string_view section;
  uint32_t records = 0;
  std::string_view body;
};

Result<Frame> ReadFrame(std::string_view file, Cursor& cursor) {
  const size_t begin = cursor.at();
  Frame frame;
  frame.section = cursor.Take(cursor.Take<uint16_t>());
  frame.records = cursor.Take<uint32_t>();
  const auto body_bytes = cursor.Take<uint64_t>();
  const std::string_view head = file.substr(begin, cursor.at() - begin);
  const std::string_view checksum = cursor.Take(kChecksumBytes);
  frame.body = cursor.Take(body_bytes);
  if (cursor.failed()) return Corrupt(fmt::format("the frame at offset {} is cut short", begin));
  const BlockDigest expected = ChecksumOf(head, frame.body);
  const std::string_view expected_bytes(reinterpret_cast<const char*>(expected.bytes.data()),
                                        expected.bytes.size());
  if (checksum != expected_bytes) {
    return Corrupt(fmt::format("the frame at offset {} is damaged: expected checksum {}, got {}",
                               begin, HexOf(checksum), HexOf(expected_bytes)));
  }
  return frame;
}

Status VisitRecords(const Frame& frame, const SnapshotVisitor& visit) {
  Cursor cursor(frame.body);
  for (uint32_t i = 0; i < frame.records; ++i) {
    const std::string_view record = cursor.Take(cursor.Take<uint32_t>());
    if (cursor.failed()) break;
    MC_RETURN_IF_ERROR(visit(frame.section, record));
  }
  if (cursor.failed() || !cursor.done()) {
    return Corrupt(fmt::format("section {} does not hold {} records in {} bytes", frame.section,
                               frame.records, frame.body.size()));
  }
  return OkStatus();
}

// Checks every frame; visits their records when `visit` is given.
Status WalkFrames(std::string_view file, const SnapshotVisitor& visit) {
  Cursor cursor(file);
  if (cursor.Take(kMagic.size()) != kMagic) return Corrupt("it does not begin as a snapshot does");
  for (;;) {
    MC_ASSIGN_OR_RETURN(const Frame frame, ReadFrame(file, cursor));
    if (frame.section == kEnd) break;
    if (visit) MC_RETURN_IF_ERROR(VisitRecords(frame, visit));
  }
  if (!cursor.done()) {
    return Corrupt(fmt::format("{} bytes follow its end", file.size() - cursor.at()));
  }
  return OkStatus();
}

}  // namespace

SnapshotBuilder::SnapshotBuilder() : file_(kMagic) {}

void SnapshotBuilder::Add(std::string_view section, std::string_view record) {
  MC_CHECK(section != kEnd && !section.empty() && section.size() <= UINT16_MAX);
  MC_CHECK(record.size() <= UINT32_MAX);
  if (section != section_ || body_.size() + record.size() > kFrameBodyBytes) CloseFrame();
  section_ = section;
  PutNumber(static_cast<uint32_t>(record.size()), &body_);
  body_ += record;
  ++records_;
}

void SnapshotBuilder::CloseFrame() {
  if (section_.empty()) return;
  std::string head;
  PutNumber(static_cast<uint16_t>(section_.size()), &head);
  head += section_;
  PutNumber(records_, &head);
  PutNumber(static_cast<uint64_t>(body_.size()), &head);
  const BlockDigest checksum = ChecksumOf(head, body_);
  file_ += head;
  file_.append(reinterpret_cast<const char*>(checksum.bytes.data()), checksum.bytes.size());
  file_ += body_;
  section_.clear();
  body_.clear();
  records_ = 0;
}

std::string SnapshotBuilder::Finish() {
  CloseFrame();
  section_ = kEnd;
  CloseFrame();
  return std::move(file_);
}

Status ReadSnapshotFrames(std::string_view file, const SnapshotVisitor& visit) {
  MC_RETURN_IF_ERROR(WalkFrames(file, nullptr));
  return visit ? WalkFrames(file, visit) : OkStatus();
}

}  // namespace mooncake::oplog
